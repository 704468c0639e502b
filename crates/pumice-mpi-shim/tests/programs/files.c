/* Writes one array of doubles in many ways that MPI has, a file for each, and reads all of them back on other parts.
 * Usage: files FOLDER BOUND. Files *.dat hold the array; those named plain_* hold what cannot be compressed. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 96, COLUMNS = 60, VALUES = ROWS * COLUMNS };

static int rank, n_ranks;
static const char *folder;
static double bound;

static double value(int i) { return sin(i / COLUMNS * 0.1) * 10 + cos(i % COLUMNS * 0.05); }

static void check(int ok, const char *what, const char *name) {
    if (!ok) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, name, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static MPI_File open_file(const char *name, int mode) {
    char path[4096];
    MPI_File file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    check(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS, "does not open", name);
    return file;
}

static const int WRITE = MPI_MODE_CREATE | MPI_MODE_WRONLY;

static void count_is(MPI_Status *status, MPI_Datatype type, int expected, const char *name) {
    int n;
    MPI_Get_count(status, type, &n);
    check(n == expected, "the count is wrong", name);
}

static void close_file(MPI_File *file, const char *name) {
    check(MPI_File_close(file) == MPI_SUCCESS && *file == MPI_FILE_NULL, "does not close", name);
}

/* The part of this rank of n things. */
static int first(int n) { return (int)((long)n * rank / n_ranks); }
static int end(int n) { return (int)((long)n * (rank + 1) / n_ranks); }

static void fill(double *values, int from, int to) {
    for (int i = from; i < to; i++) values[i - from] = value(i);
}

/* Reads the whole file on each rank, in three ways. */
static void verify(const char *name, int header) {
    double *values = malloc(VALUES * sizeof(double));
    MPI_Status status;
    MPI_Offset size, position;
    MPI_File file = open_file(name, MPI_MODE_RDONLY);
    MPI_File_get_size(file, &size);
    check(size == header + VALUES * (MPI_Offset)sizeof(double), "the size is wrong", name);
    if (header) {
        char text[64] = {0};
        MPI_File_read_at(file, 0, text, header, MPI_CHAR, &status);
        count_is(&status, MPI_CHAR, header, name);
        check(memcmp(text, "a header of 24 bytes....", 24) == 0, "the header is wrong", name);
    }
    MPI_File_set_view(file, header, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    MPI_File_read_at_all(file, 0, values, VALUES, MPI_DOUBLE, &status);
    count_is(&status, MPI_DOUBLE, VALUES, name);
    for (int i = 0; i < VALUES; i++) check(fabs(values[i] - value(i)) <= bound, "a value is wrong (together)", name);
    /* Row by row, and over the end. */
    MPI_File_seek(file, -COLUMNS * 3, MPI_SEEK_END);
    for (int row = ROWS - 3; row <= ROWS; row++) {
        MPI_File_get_position(file, &position);
        check(position == row * COLUMNS, "the position is wrong", name);
        MPI_File_read(file, values, COLUMNS, MPI_DOUBLE, &status);
        count_is(&status, MPI_DOUBLE, row < ROWS ? COLUMNS : 0, name);
        for (int i = 0; i < COLUMNS && row < ROWS; i++)
            check(fabs(values[i] - value(row * COLUMNS + i)) <= bound, "a value is wrong (rows)", name);
    }
    /* A column, through a view, to every second value of the memory. */
    MPI_Datatype column, spread;
    int column_at = (7 + rank) % COLUMNS;
    MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &spread);
    MPI_Type_commit(&spread);
    MPI_File_set_view(file, header + column_at * (MPI_Offset)sizeof(double), MPI_DOUBLE, column, "native", MPI_INFO_NULL);
    MPI_Request request;
    MPI_File_iread_all(file, values, ROWS, spread, &request);
    MPI_Wait(&request, &status);
    count_is(&status, spread, ROWS, name);
    for (int row = 0; row < ROWS; row++)
        check(fabs(values[2 * row] - value(row * COLUMNS + column_at)) <= bound, "a value is wrong (column)", name);
    MPI_Type_free(&column);
    MPI_Type_free(&spread);
    close_file(&file, name);
    free(values);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    folder = argv[1];
    bound = atof(argv[2]);
    double *values = malloc(2 * VALUES * sizeof(double));
    MPI_Status status;
    MPI_Request request;
    MPI_File file;
    int from = first(VALUES), to = end(VALUES), n = to - from;
    fill(values, from, to);

    /* Each rank a run of bytes that need not be whole rows. */
    file = open_file("at_all.dat", WRITE);
    MPI_File_write_at_all(file, from * (MPI_Offset)sizeof(double), values, n, MPI_DOUBLE, &status);
    count_is(&status, MPI_DOUBLE, n, "at_all.dat");
    close_file(&file, "at_all.dat");
    verify("at_all.dat", 0);

    /* As bytes, with the pointer, in pieces, over what is there already. */
    file = open_file("pointer.dat", WRITE);
    MPI_File_set_size(file, 0);
    MPI_File_seek(file, from * (MPI_Offset)sizeof(double), MPI_SEEK_SET);
    for (int i = 0; i < n; i += 50) {
        int part = n - i < 50 ? n - i : 50;
        MPI_File_write(file, values + i, part * (int)sizeof(double), MPI_BYTE, &status);
        count_is(&status, MPI_DOUBLE, part, "pointer.dat");
    }
    MPI_File_sync(file);
    close_file(&file, "pointer.dat");
    verify("pointer.dat", 0);

    /* Blocks of columns by a subarray, with a header; from every second value of the memory. */
    int columns_from = first(COLUMNS), columns = end(COLUMNS) - columns_from;
    file = open_file("header.dat", WRITE);
    if (rank == 0) MPI_File_write(file, "a header of 24 bytes....", 24, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_Datatype block, spread;
    int sizes[2] = {ROWS, COLUMNS}, subsizes[2] = {ROWS, columns}, starts[2] = {0, columns_from};
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &block);
    MPI_Type_commit(&block);
    MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &spread);
    MPI_Type_commit(&spread);
    MPI_File_set_view(file, 24, MPI_DOUBLE, block, "native", MPI_INFO_NULL);
    for (int i = 0; i < ROWS * columns; i++) values[2 * i] = value(i / columns * COLUMNS + columns_from + i % columns);
    MPI_File_write_all(file, values, ROWS * columns, spread, &status);
    count_is(&status, spread, ROWS * columns, "header.dat");
    close_file(&file, "header.dat");
    MPI_Type_free(&spread);
    verify("header.dat", 24);

    /* Without waiting, for reading and writing. */
    fill(values, from, to);
    file = open_file("nonblocking.dat", MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    MPI_File_iwrite_at(file, from, values, n / 2, MPI_DOUBLE, &request);
    MPI_Wait(&request, &status);
    count_is(&status, MPI_DOUBLE, n / 2, "nonblocking.dat");
    MPI_File_seek(file, from + n / 2, MPI_SEEK_SET);
    MPI_File_iwrite_all(file, values + n / 2, n - n / 2, MPI_DOUBLE, &request);
    MPI_Wait(&request, &status);
    close_file(&file, "nonblocking.dat");
    verify("nonblocking.dat", 0);

    /* Begun and ended; one rank has all, in rows that are written backwards. */
    file = open_file("split.dat", WRITE);
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    for (int row = ROWS - 1; row >= 0; row--) {
        int mine = row % n_ranks == rank ? COLUMNS : 0;
        fill(values, row * COLUMNS, (row + 1) * COLUMNS);
        MPI_File_write_at_all_begin(file, row * COLUMNS, values, mine, MPI_DOUBLE);
        MPI_File_write_at_all_end(file, values, &status);
        count_is(&status, MPI_DOUBLE, mine, "split.dat");
    }
    close_file(&file, "split.dat");
    verify("split.dat", 0);

    /* Only a part of the array of before: the rest stays. */
    fill(values, 0, VALUES);
    for (int pass = 0; pass < 2; pass++) {
        file = open_file("part.dat", WRITE);
        MPI_File_write_at_all(file, pass * (100 + rank) * (MPI_Offset)sizeof(double), values, pass ? 1 : rank ? 0 : VALUES,
                              MPI_DOUBLE, &status);
        close_file(&file, "part.dat");
    }
    file = open_file("part.dat", MPI_MODE_RDONLY);
    MPI_File_read_at_all(file, 0, values, VALUES * (int)sizeof(double), MPI_BYTE, &status);
    for (int i = 0; i < VALUES; i++) {
        int is_new = i >= 100 && i < 100 + n_ranks;
        check(fabs(values[i] - value(is_new ? 0 : i)) <= (is_new ? 0 : bound), "a value is wrong", "part.dat");
    }
    close_file(&file, "part.dat");
    fill(values, 0, VALUES);

    /* Holes: with calls that are not collective, as those of Open MPI put bytes of other memory into holes. */
    file = open_file("plain_holes.dat", WRITE);
    MPI_File_write_at(file, (rank + 1) * 1000, values, 20, MPI_DOUBLE, &status);
    close_file(&file, "plain_holes.dat");

    /* Integers, and the shared pointer after the own one. */
    file = open_file("plain_integers.dat", WRITE);
    MPI_File_write_at(file, rank * 40, sizes, 2, MPI_INT, &status);
    close_file(&file, "plain_integers.dat");
    file = open_file("plain_shared.dat", WRITE);
    if (rank == 0) MPI_File_write_at(file, 8 * (MPI_Offset)n_ranks, values, 30, MPI_DOUBLE, &status);
    MPI_File_write_ordered(file, values + rank, 1, MPI_DOUBLE, &status);
    count_is(&status, MPI_DOUBLE, 1, "plain_shared.dat");
    close_file(&file, "plain_shared.dat");

    /* What was written is read before the file is closed. */
    file = open_file("plain_read.dat", MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    fill(values, from, to);
    MPI_File_write_at_all(file, from, values, n, MPI_DOUBLE, &status);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_read_at_all(file, VALUES - to, values, n, MPI_DOUBLE, &status);
    count_is(&status, MPI_DOUBLE, n, "plain_read.dat");
    for (int i = 0; i < n; i++) check(values[i] == value(VALUES - to + i), "a value is wrong", "plain_read.dat");
    close_file(&file, "plain_read.dat");

    /* A name that no rule has. */
    file = open_file("other.bin", WRITE);
    MPI_File_write_at_all(file, from * (MPI_Offset)sizeof(double), values, n, MPI_DOUBLE, &status);
    close_file(&file, "other.bin");
    MPI_Type_free(&block);
    free(values);
    MPI_Finalize();
    return 0;
}
