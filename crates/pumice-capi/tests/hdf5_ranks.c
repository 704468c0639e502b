/* Ranks write datasets with pumice_hdf5_write_chunks(), together and each into a file of its own with a virtual dataset over
 * them. The chunks must have the bytes that the filter stores for one process, and for ranks that write collectively.
 * Run: mpirun -n 1..4 ./hdf5_ranks FOLDER, with HDF5_PLUGIN_PATH set. */
#include <math.h>

#include "pumice_hdf5_mpi.h"

enum { ROWS = 70, COLUMNS = 90, CHUNK_ROWS = 24, CHUNK_COLUMNS = 40, VALUES = ROWS * COLUMNS };
static const hsize_t shape[2] = {ROWS, COLUMNS}, chunk[2] = {CHUNK_ROWS, CHUNK_COLUMNS};
static const double REL = 1e-3, FILL = -9999.0;

static int me, n_ranks;
static char folder[3000];

/* What is written: type and order of the values, a fill value, HDF5's shuffle before the filter, and the axis that ranks share out. */
typedef struct {
    hid_t type;
    const double *fill;
    int has_shuffle, axis;
} variant;

static void check_(int ok, const char *what, int line)
{
    if (!ok) {
        fprintf(stderr, "rank %d of %d: hdf5_ranks.c:%d: %s (%s)\n", me, n_ranks, line, what, pumice_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
#define check(what) check_(what, #what, __LINE__)

static const char *in_folder(const char *name)
{
    static char path[4][4096];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

/* Smooth, with NaN, infinities and fill values here and there: more of them in the last chunks. */
static double value(size_t row, size_t column)
{
    if (row % 17 == 3 && column % 7 < 2)
        return column % 7 ? NAN : FILL;
    if (row == 69 && column > 60)
        return column % 2 ? INFINITY : -INFINITY;
    return 10 * sin(0.1 * (double)row) + cos(0.2 * (double)column) + 0.01 * (double)((row * 7 + column * 13) % 11);
}

/* A part of the values in the type of the variant. */
static void *part(const variant *of, const hsize_t *start, const hsize_t *count)
{
    double *values = malloc((size_t)(count[0] * count[1]) * sizeof *values + 1);
    size_t n = 0;
    for (hsize_t row = start[0]; row < start[0] + count[0]; row++)
        for (hsize_t column = start[1]; column < start[1] + count[1]; column++)
            values[n++] = value((size_t)row, (size_t)column);
    check(H5Tconvert(H5T_NATIVE_DOUBLE, of->type, n, values, NULL, H5P_DEFAULT) >= 0);
    return values;
}

/* The chunks of a rank: whole ones along one axis, so that some ranks may have none. */
static void box_of(const variant *of, int rank, int n, hsize_t *start, hsize_t *count)
{
    const int axis = of->axis;
    const hsize_t n_chunks = (shape[axis] + chunk[axis] - 1) / chunk[axis];
    const hsize_t first = n_chunks * (hsize_t)rank / (hsize_t)n * chunk[axis];
    const hsize_t end = n_chunks * ((hsize_t)rank + 1) / (hsize_t)n * chunk[axis];
    start[1 - axis] = 0;
    count[1 - axis] = shape[1 - axis];
    start[axis] = first;
    count[axis] = (end < shape[axis] ? end : shape[axis]) - first;
}

static hid_t properties(const variant *of)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk);
    /* No time in the file, so that equal files have equal bytes. */
    H5Pset_obj_track_times(dcpl, 0);
    if (of->fill)
        H5Pset_fill_value(dcpl, H5T_NATIVE_DOUBLE, of->fill);
    if (of->has_shuffle)
        H5Pset_shuffle(dcpl);
    unsigned int cd_values[PUMICE_HDF5_MAX_CD_VALUES];
    size_t n;
    pumice_config *config = pumice_config_new(PUMICE_BOUND_REL, REL);
    check(pumice_hdf5_cd_values(config, cd_values, PUMICE_HDF5_MAX_CD_VALUES, &n) == PUMICE_STATUS_OK);
    pumice_config_free(config);
    check(H5Pset_filter(dcpl, PUMICE_HDF5_FILTER_ID, H5Z_FLAG_MANDATORY, n, cd_values) >= 0);
    return dcpl;
}

static hid_t create(const char *path, hid_t access, const variant *of, const hsize_t *extents, hid_t dcpl, hid_t *file)
{
    *file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    check(*file >= 0);
    /* Only what can grow may be smaller than a chunk. */
    const hsize_t grows[2] = {H5S_UNLIMITED, H5S_UNLIMITED};
    hid_t space = H5Screate_simple(2, extents, extents[0] < chunk[0] || extents[1] < chunk[1] ? grows : NULL);
    hid_t dataset = H5Dcreate2(*file, "t", of->type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    check(dataset >= 0);
    H5Sclose(space);
    return dataset;
}

/* One process, through the filter. */
static void write_alone(const char *path, const variant *of)
{
    const hsize_t start[2] = {0, 0};
    hid_t file, dcpl = properties(of), dataset = create(path, H5P_DEFAULT, of, shape, dcpl, &file);
    void *values = part(of, start, shape);
    check(H5Dwrite(dataset, of->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    free(values);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    check(H5Fclose(file) >= 0);
}

/* All ranks, through the filter, collectively. */
static void write_collectively(const char *path, const variant *of)
{
    hsize_t start[2], count[2];
    box_of(of, me, n_ranks, start, count);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER), file, dcpl = properties(of);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    hid_t dataset = create(path, access, of, shape, dcpl, &file), space = H5Dget_space(dataset);
    hid_t memory = H5Screate_simple(2, count, NULL);
    if (count[of->axis] == 0) {
        H5Sselect_none(space);
        H5Sselect_none(memory);
    } else
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    void *values = part(of, start, count);
    check(H5Dwrite(dataset, of->type, memory, space, transfer, values) >= 0);
    free(values);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Pclose(transfer);
    H5Pclose(access);
    check(H5Fclose(file) >= 0);
}

/* The ranks of `comm`, which compress chunks that the first of them writes. */
static void write_chunks(const char *path, const variant *of, const hsize_t *extents, const hsize_t *start,
                         const hsize_t *count, const void *values, MPI_Comm comm)
{
    int rank;
    char error[PUMICE_HDF5_ERROR_BYTES];
    MPI_Comm_rank(comm, &rank);
    hid_t file = -1, dataset = -1, dcpl = properties(of);
    if (rank == 0)
        dataset = create(path, H5P_DEFAULT, of, extents, dcpl, &file);
    check_(!pumice_hdf5_write_chunks(dataset, of->type, values, start, count, 1, 0, comm, error), error, __LINE__);
    H5Pclose(dcpl);
    if (rank == 0) {
        H5Dclose(dataset);
        check(H5Fclose(file) >= 0);
    }
}

/* Each rank a file of its own, if it has values; then one file that refers to all. */
static void write_parts(const char *path, const variant *of)
{
    hsize_t start[2], count[2];
    const hsize_t origin[2] = {0, 0};
    char name[64];
    box_of(of, me, n_ranks, start, count);
    if (count[of->axis] > 0) {
        void *values = part(of, start, count);
        snprintf(name, sizeof name, "part.%d.h5", me);
        write_chunks(in_folder(name), of, count, origin, count, values, MPI_COMM_SELF);
        free(values);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me != 0)
        return;
    hid_t space = H5Screate_simple(2, shape, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE), file;
    for (int rank = 0; rank < n_ranks; rank++) {
        box_of(of, rank, n_ranks, start, count);
        if (count[of->axis] == 0)
            continue;
        snprintf(name, sizeof name, "part.%d.h5", rank);
        hid_t source = H5Screate_simple(2, count, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        check(H5Pset_virtual(dcpl, space, name, "t", source) >= 0);
        H5Sclose(source);
    }
    H5Sclose(space);
    H5Dclose(create(path, H5P_DEFAULT, of, shape, dcpl, &file));
    H5Pclose(dcpl);
    check(H5Fclose(file) >= 0);
}

/* The stored bytes of each chunk, to be freed. */
static void *stored(hid_t dataset, const hsize_t *offset, hsize_t *n_bytes)
{
    check(H5Dget_chunk_storage_size(dataset, offset, n_bytes) >= 0);
    void *bytes = malloc((size_t)*n_bytes + 1);
    uint32_t mask = 1;
    check(H5Dread_chunk(dataset, H5P_DEFAULT, offset, &mask, bytes) >= 0);
    check(mask == 0);
    return bytes;
}

static void same_chunks(const char *one, const char *other)
{
    hid_t files[2] = {H5Fopen(one, H5F_ACC_RDONLY, H5P_DEFAULT), H5Fopen(other, H5F_ACC_RDONLY, H5P_DEFAULT)};
    hid_t datasets[2] = {H5Dopen2(files[0], "t", H5P_DEFAULT), H5Dopen2(files[1], "t", H5P_DEFAULT)};
    for (hsize_t row = 0; row < ROWS; row += CHUNK_ROWS)
        for (hsize_t column = 0; column < COLUMNS; column += CHUNK_COLUMNS) {
            const hsize_t offset[2] = {row, column};
            hsize_t n[2];
            void *bytes[2] = {stored(datasets[0], offset, &n[0]), stored(datasets[1], offset, &n[1])};
            check(n[0] == n[1] && memcmp(bytes[0], bytes[1], (size_t)n[0]) == 0);
            free(bytes[0]);
            free(bytes[1]);
        }
    for (int i = 0; i < 2; i++) {
        H5Dclose(datasets[i]);
        H5Fclose(files[i]);
    }
}

static void same_files(const char *one, const char *other)
{
    FILE *files[2] = {fopen(one, "rb"), fopen(other, "rb")};
    check(files[0] && files[1]);
    int a, b;
    do {
        a = fgetc(files[0]);
        b = fgetc(files[1]);
        check(a == b);
    } while (a != EOF);
    fclose(files[0]);
    fclose(files[1]);
}

static double *restored(const char *path)
{
    double *values = malloc(VALUES * sizeof *values);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), dataset = H5Dopen2(file, "t", H5P_DEFAULT);
    check(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(dataset);
    H5Fclose(file);
    return values;
}

static void all_ways(const variant *of)
{
    const char *alone = in_folder("alone.h5"), *together = in_folder("together.h5");
    hsize_t start[2], count[2];
    const hsize_t origin[2] = {0, 0}, nothing[2] = {0, 0};
    if (me == 0)
        write_alone(alone, of);
    write_collectively(in_folder("collective.h5"), of);
    write_parts(in_folder("virtual.h5"), of);
    box_of(of, me, n_ranks, start, count);
    void *values = part(of, start, count), *all = part(of, origin, shape);
    write_chunks(in_folder("together.h5"), of, shape, start, count, values, MPI_COMM_WORLD);
    write_chunks(in_folder("first.h5"), of, shape, origin, me == 0 ? shape : nothing, all, MPI_COMM_WORLD);
    free(values);
    free(all);
    if (me == 0) {
        alone = in_folder("alone.h5"), together = in_folder("together.h5");
        same_chunks(alone, together);
        same_chunks(alone, in_folder("collective.h5"));
        same_files(together, in_folder("first.h5"));
        double *expected = restored(in_folder("alone.h5")), *joined = restored(in_folder("virtual.h5")), range = 2 * 11.2;
        for (size_t i = 0; i < VALUES; i++) {
            const double wanted = value(i / COLUMNS, i % COLUMNS);
            check(isnan(wanted) ? isnan(expected[i]) && isnan(joined[i]) : expected[i] == joined[i]);
            if (!isfinite(wanted) || wanted == FILL)
                check(isnan(wanted) || expected[i] == wanted);
            else /* and half a unit of the last place of a float, to which the values were rounded */
                check(fabs(expected[i] - wanted) <= REL * range + 1e-6);
        }
        free(expected);
        free(joined);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A call that must fail on every rank, with the same text. */
static void refused(const variant *of, hid_t dcpl, hid_t type, const hsize_t *start, const hsize_t *count, const char *text)
{
    char error[PUMICE_HDF5_ERROR_BYTES], first[PUMICE_HDF5_ERROR_BYTES];
    hid_t file = -1, dataset = me == 0 ? create(in_folder("refused.h5"), H5P_DEFAULT, of, shape, dcpl, &file) : -1;
    const hsize_t origin[2] = {0, 0};
    void *values = part(of, origin, shape);
    check(pumice_hdf5_write_chunks(dataset, type, values, start, count, 1, 0, MPI_COMM_WORLD, error) == -1);
    check_(strstr(error, text) != NULL, error, __LINE__);
    memcpy(first, error, sizeof first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    check(strcmp(first, error) == 0);
    free(values);
    if (me == 0) {
        check(H5Dget_storage_size(dataset) == 0);
        H5Dclose(dataset);
        check(H5Fclose(file) >= 0);
    }
    H5Pclose(dcpl);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void mistakes(void)
{
    const variant plain = {H5T_IEEE_F32LE, NULL, 0, 0};
    hsize_t start[2], count[2], cut[2];
    box_of(&plain, me, n_ranks, start, count);
    refused(&plain, properties(&plain), H5T_IEEE_F64LE, start, count, "not of the dataset's type");
    refused(&plain, properties(&plain), H5T_IEEE_F32BE, start, count, "not of the dataset's type");
    hid_t dcpl = properties(&plain);
    H5Pset_deflate(dcpl, 1);
    refused(&plain, dcpl, plain.type, start, count, "a filter after Pumice");
    dcpl = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(dcpl, 2, chunk);
    refused(&plain, dcpl, plain.type, start, count, "no open dataset");
    /* Only the last rank is wrong. */
    cut[0] = count[0] - (me == n_ranks - 1 ? 1 : 0);
    cut[1] = count[1];
    refused(&plain, properties(&plain), plain.type, start, cut, "borders of chunks");
    if (n_ranks > 1) {
        const hsize_t origin[2] = {0, 0};
        refused(&plain, properties(&plain), plain.type, origin, shape, "both give one chunk");
    }
}

/* In a file that all ranks have open together, one rank must not write chunks: it would wait for the others. */
static void shared_file(void)
{
    const variant plain = {H5T_IEEE_F32LE, NULL, 0, 0};
    char error[PUMICE_HDF5_ERROR_BYTES];
    hsize_t start[2], count[2];
    box_of(&plain, me, n_ranks, start, count);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), dcpl = properties(&plain), file;
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t dataset = create(in_folder("shared.h5"), access, &plain, shape, dcpl, &file);
    void *values = part(&plain, start, count);
    check(pumice_hdf5_write_chunks(dataset, plain.type, values, start, count, 1, 0, MPI_COMM_WORLD, error) == -1);
    check_(strstr(error, "H5Pset_fapl_mpio") != NULL, error, __LINE__);
    free(values);
    H5Dclose(dataset);
    H5Pclose(dcpl);
    H5Pclose(access);
    check(H5Fclose(file) >= 0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    check(argc == 2);
    snprintf(folder, sizeof folder, "%s", argv[1]);
    const double nan_fill = NAN;
    const variant variants[] = {
        {H5T_IEEE_F32LE, NULL, 0, 0},      {H5T_IEEE_F64LE, &FILL, 0, 1},     {H5T_IEEE_F32BE, &nan_fill, 0, 0},
        {H5T_IEEE_F64BE, NULL, 1, 1},      {H5T_IEEE_F32LE, &FILL, 1, 0},
    };
    const int n_variants = (int)(sizeof variants / sizeof *variants);
    for (int i = 0; i < n_variants; i++)
        all_ways(&variants[i]);
    mistakes();
    shared_file();
    if (me == 0)
        printf("%d ranks: %d variants have the bytes of the filter\n", n_ranks, n_variants);
    MPI_Finalize();
    return 0;
}
