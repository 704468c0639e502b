/* Several ranks write one NetCDF-4 file together through the filter, as an I/O server does in its one-file mode: each variable by
 * one collective call. Ranks have whole chunks, but the last, which is cut at the edge; with more ranks than chunks some have
 * nothing. Then each rank reads what its neighbour wrote. Build: mpicc parallel_netcdf.c $(pkg-config --cflags --libs netcdf-mpi)
 * -lm; run: mpirun -n 2 ./parallel_netcdf FILE, with HDF5_PLUGIN_PATH set. */
#include <math.h>
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>

enum { LEVELS = 5, ROWS = 70, COLUMNS = 90, CHUNK_ROWS = 24, FILTER = 480, VARIABLES = 3 };
static const float FILL = 1e20f;

static void check(int status, const char *what)
{
    if (status != NC_NOERR) {
        fprintf(stderr, "failed: %s: %s\n", what, nc_strerror(status));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void check_true(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* With NaN and fill values here and there. */
static float value(int variable, size_t level, size_t row, size_t column)
{
    if (row % 13 == 4 && column < 7)
        return column % 2 ? NAN : FILL;
    return 280.0f + 10.0f * sinf(0.1f * (float)row + (float)variable) + cosf(0.2f * (float)column) - 6.5f * (float)level;
}

/* The rows of a rank: whole chunks. */
static void rows_of(int rank, int n_ranks, size_t start[3], size_t count[3])
{
    const size_t n_chunks = (ROWS + CHUNK_ROWS - 1) / CHUNK_ROWS;
    const size_t first = n_chunks * (size_t)rank / (size_t)n_ranks * CHUNK_ROWS;
    const size_t last = n_chunks * ((size_t)rank + 1) / (size_t)n_ranks * CHUNK_ROWS;
    start[0] = start[2] = 0;
    start[1] = first < ROWS ? first : ROWS;
    count[0] = LEVELS;
    count[1] = (last < ROWS ? last : ROWS) - start[1];
    count[2] = COLUMNS;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int me, n_ranks, file, dimensions[3], variables[VARIABLES];
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    check_true(argc == 2, "usage: parallel_netcdf FILE");

    check(nc_create_par(argv[1], NC_CLOBBER | NC_NETCDF4, MPI_COMM_WORLD, MPI_INFO_NULL, &file), "nc_create_par");
    check(nc_def_dim(file, "level", LEVELS, &dimensions[0]), "nc_def_dim");
    check(nc_def_dim(file, "y", ROWS, &dimensions[1]), "nc_def_dim");
    check(nc_def_dim(file, "x", COLUMNS, &dimensions[2]), "nc_def_dim");
    /* An absolute bound of 0.25 with the preset `fast` (docs/hdf5.md). */
    const unsigned cd_values[3] = {0x00010101, 0x3fd00000, 0};
    const size_t chunk[3] = {LEVELS, CHUNK_ROWS, COLUMNS};
    for (int i = 0; i < VARIABLES; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", i);
        check(nc_def_var(file, name, NC_FLOAT, 3, dimensions, &variables[i]), "nc_def_var");
        check(nc_def_var_chunking(file, variables[i], NC_CHUNKED, chunk), "nc_def_var_chunking");
        check(nc_def_var_fill(file, variables[i], NC_FILL, &FILL), "nc_def_var_fill");
        check(nc_def_var_filter(file, variables[i], FILTER, 3, cd_values), "nc_def_var_filter");
    }
    check(nc_enddef(file), "nc_enddef");

    static float values[LEVELS * ROWS * COLUMNS];
    size_t start[3], count[3];
    rows_of(me, n_ranks, start, count);
    for (int i = 0; i < VARIABLES; i++) {
        size_t n = 0;
        for (size_t level = 0; level < count[0]; level++)
            for (size_t row = start[1]; row < start[1] + count[1]; row++)
                for (size_t column = 0; column < COLUMNS; column++)
                    values[n++] = value(i, level, row, column);
        /* Filters need it: HDF5 must learn of all chunks at once. */
        check(nc_var_par_access(file, variables[i], NC_COLLECTIVE), "nc_var_par_access");
        check(nc_put_vara_float(file, variables[i], start, count, values), "nc_put_vara_float");
    }
    check(nc_close(file), "nc_close");

    check(nc_open_par(argv[1], NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &file), "nc_open_par");
    rows_of((me + 1) % n_ranks, n_ranks, start, count);
    double largest = 0;
    for (int i = 0; i < VARIABLES; i++) {
        check(nc_var_par_access(file, variables[i], NC_COLLECTIVE), "nc_var_par_access");
        check(nc_get_vara_float(file, variables[i], start, count, values), "nc_get_vara_float");
        size_t n = 0;
        for (size_t level = 0; level < count[0]; level++)
            for (size_t row = start[1]; row < start[1] + count[1]; row++)
                for (size_t column = 0; column < COLUMNS; column++) {
                    const float wanted = value(i, level, row, column), found = values[n++];
                    if (isnan(wanted) || wanted == FILL)
                        check_true(isnan(wanted) ? isnan(found) : found == FILL, "keep NaN and fill values");
                    else
                        largest = fmax(largest, fabs((double)found - (double)wanted));
                }
        check_true(largest <= 0.25, "keep the bound");
    }
    check(nc_close(file), "nc_close");
    FILE *whole = fopen(argv[1], "rb");
    check_true(whole && fseek(whole, 0, SEEK_END) == 0 && ftell(whole) < (long)sizeof values * VARIABLES / 2, "compress");
    fclose(whole);
    if (me == 0)
        printf("NetCDF, %d ranks, largest error %g\n", n_ranks, largest);
    MPI_Finalize();
    return 0;
}
