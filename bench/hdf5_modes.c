/* Writes the same 3D fields in the two modes of an I/O server: one file by all ranks, or a file by each rank and a virtual dataset
 * over them. Each mode without compression, with gzip 5, with Pumice's filter, and with chunks that the ranks compress themselves.
 *
 *     mpirun -n RANKS ./hdf5_modes FOLDER REPEATS REL PRESET FIELD...      FIELD: a file of floats, NAME_AxBxC.f32
 *
 * Prints one JSON object per measurement, in a shuffled order of the eight ways for each repetition. `cargo xtask mpi hdf5` runs it. */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pumice_hdf5_mpi.h"

enum { NONE, GZIP, FILTER, DIRECT, N_FORMATS };
static const char *const NAMES[N_FORMATS] = {"none", "gzip", "filter", "direct"};
enum { MAX_FIELDS = 64, CHUNKS = 4 };

typedef struct {
    char name[64];
    hsize_t shape[3], chunk[3];
    /* The planes of this rank. */
    hsize_t start[3], count[3];
    float *values;
    double bound;
} field;

static int me, n_ranks, n_fields;
static field fields[MAX_FIELDS];
static const char *folder, *preset;
static double rel;

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "rank %d: failed: %s (%s)\n", me, what, pumice_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Reads this rank's planes; the bound comes from the range of the whole field. */
static void load(field *to, const char *path)
{
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *shape = strrchr(path, '_');
    unsigned long long n[3];
    check(shape && sscanf(shape, "_%llux%llux%llu.f32", &n[0], &n[1], &n[2]) == 3, path);
    snprintf(to->name, sizeof to->name, "%.*s", (int)(shape - base), base);
    for (int i = 0; i < 3; i++) {
        to->shape[i] = to->chunk[i] = to->count[i] = n[i];
        to->start[i] = 0;
    }
    /* As many chunks as there are ranks at most, so that all have the same share. */
    to->chunk[0] = (n[0] + CHUNKS - 1) / CHUNKS;
    const hsize_t n_chunks = (n[0] + to->chunk[0] - 1) / to->chunk[0];
    const hsize_t first = n_chunks * (hsize_t)me / (hsize_t)n_ranks * to->chunk[0];
    hsize_t last = n_chunks * ((hsize_t)me + 1) / (hsize_t)n_ranks * to->chunk[0];
    if (last > n[0])
        last = n[0];
    to->start[0] = first;
    to->count[0] = last - first;
    const size_t plane = (size_t)(n[1] * n[2]), n_values = plane * (size_t)n[0];
    float *all = malloc(n_values * sizeof *all);
    FILE *file = fopen(path, "rb");
    check(all && file && fread(all, sizeof *all, n_values, file) == n_values, path);
    fclose(file);
    float least = INFINITY, most = -INFINITY;
    for (size_t i = 0; i < n_values; i++)
        if (isfinite(all[i]) && fabsf(all[i]) < 1e19f) {
            least = fminf(least, all[i]);
            most = fmaxf(most, all[i]);
        }
    to->bound = rel * ((double)most - (double)least);
    to->values = malloc((size_t)to->count[0] * plane * sizeof *all + 1);
    memcpy(to->values, all + first * plane, (size_t)to->count[0] * plane * sizeof *all);
    free(all);
}

static hid_t properties(const field *of, int format)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    unsigned int cd_values[PUMICE_HDF5_MAX_CD_VALUES];
    size_t n;
    if (format == NONE)
        return dcpl;
    H5Pset_chunk(dcpl, 3, of->chunk);
    if (format == GZIP) {
        H5Pset_deflate(dcpl, 5);
        return dcpl;
    }
    pumice_config *config = pumice_config_new(PUMICE_BOUND_REL, rel);
    check(pumice_config_set_preset(config, preset) == PUMICE_STATUS_OK, "the preset");
    check(pumice_hdf5_cd_values(config, cd_values, PUMICE_HDF5_MAX_CD_VALUES, &n) == PUMICE_STATUS_OK, "cd_values");
    pumice_config_free(config);
    check(H5Pset_filter(dcpl, PUMICE_HDF5_FILTER_ID, H5Z_FLAG_MANDATORY, n, cd_values) >= 0, "find the filter");
    return dcpl;
}

/* Seconds for datasets to be created, written, and the file to be closed. */
typedef struct {
    double create, write, close, sync;
} times;

/* Writes all fields into one file: by all ranks of `comm`. */
static void write_file(const char *path, int format, int is_whole, MPI_Comm comm, times *spent)
{
    int rank;
    MPI_Comm_rank(comm, &rank);
    const int is_parallel = is_whole && format != DIRECT;
    double before = MPI_Wtime();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER), file = -1;
    if (is_parallel) {
        H5Pset_fapl_mpio(access, comm, MPI_INFO_NULL);
        H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    }
    const int has_file = is_parallel || rank == 0;
    if (has_file)
        check((file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access)) >= 0, path);
    spent->create += MPI_Wtime() - before;
    for (int i = 0; i < n_fields; i++) {
        const field *of = &fields[i];
        before = MPI_Wtime();
        hsize_t shape[3] = {is_whole ? of->shape[0] : of->count[0], of->shape[1], of->shape[2]};
        hsize_t start[3] = {is_whole ? of->start[0] : 0, 0, 0};
        if (shape[0] == 0)
            continue;
        /* Only what can grow may be smaller than a chunk. */
        const hsize_t grows[3] = {H5S_UNLIMITED, shape[1], shape[2]};
        hid_t dataset = -1, space = H5Screate_simple(3, shape, format != NONE && shape[0] < of->chunk[0] ? grows : NULL);
        if (has_file) {
            hid_t dcpl = properties(of, format);
            dataset = H5Dcreate2(file, of->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
            check(dataset >= 0, "create a dataset");
            H5Pclose(dcpl);
        }
        double between = MPI_Wtime();
        spent->create += between - before;
        if (format == DIRECT) {
            char error[PUMICE_HDF5_ERROR_BYTES];
            check(!pumice_hdf5_write_chunks(dataset, H5T_IEEE_F32LE, of->values, start, of->count, 1, 0, comm, error),
                  error);
        } else {
            hid_t memory = H5Screate_simple(3, of->count, NULL);
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, of->count, NULL);
            if (of->count[0] == 0) {
                H5Sselect_none(space);
                H5Sselect_none(memory);
            }
            check(H5Dwrite(dataset, H5T_IEEE_F32LE, memory, space, transfer, of->values) >= 0, "write");
            H5Sclose(memory);
        }
        if (has_file)
            H5Dclose(dataset);
        H5Sclose(space);
        spent->write += MPI_Wtime() - between;
    }
    before = MPI_Wtime();
    if (has_file)
        check(H5Fclose(file) >= 0, "close the file");
    H5Pclose(transfer);
    H5Pclose(access);
    spent->close += MPI_Wtime() - before;
}

/* A virtual dataset for each field over the files of the ranks. */
static void write_virtual(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    check(file >= 0, path);
    for (int i = 0; i < n_fields; i++) {
        const field *of = &fields[i];
        hid_t space = H5Screate_simple(3, of->shape, NULL), dcpl = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t n_chunks = (of->shape[0] + of->chunk[0] - 1) / of->chunk[0];
        for (int rank = 0; rank < n_ranks; rank++) {
            hsize_t start[3] = {n_chunks * (hsize_t)rank / (hsize_t)n_ranks * of->chunk[0], 0, 0};
            hsize_t end = n_chunks * ((hsize_t)rank + 1) / (hsize_t)n_ranks * of->chunk[0];
            hsize_t count[3] = {(end < of->shape[0] ? end : of->shape[0]) - start[0], of->shape[1], of->shape[2]};
            if (count[0] == 0)
                continue;
            char name[64];
            snprintf(name, sizeof name, "part.%d.h5", rank);
            hid_t part = H5Screate_simple(3, count, NULL);
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
            check(H5Pset_virtual(dcpl, space, name, of->name, part) >= 0, "a part of a virtual dataset");
            H5Sclose(part);
        }
        H5Sselect_all(space);
        hid_t dataset = H5Dcreate2(file, of->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
        check(dataset >= 0, "create a virtual dataset");
        H5Dclose(dataset);
        H5Pclose(dcpl);
        H5Sclose(space);
    }
    check(H5Fclose(file) >= 0, "close the virtual file");
}

static long long size_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (long long)status.st_size : 0;
}

static void sync_file(const char *path)
{
    const int file = open(path, O_RDWR);
    check(file >= 0 && fsync(file) == 0 && close(file) == 0, "sync a file");
}

/* Every rank reads its planes of every field back, and compares. */
static void verify(const char *path, int format)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    check(file >= 0, path);
    for (int i = 0; i < n_fields; i++) {
        const field *of = &fields[i];
        if (of->count[0] == 0)
            continue;
        const size_t n = (size_t)(of->count[0] * of->count[1] * of->count[2]);
        float *restored = malloc(n * sizeof *restored);
        hid_t dataset = H5Dopen2(file, of->name, H5P_DEFAULT), space = H5Dget_space(dataset);
        hid_t memory = H5Screate_simple(3, of->count, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, of->start, NULL, of->count, NULL);
        check(H5Dread(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, restored) >= 0, "read");
        const double bound = format == NONE || format == GZIP ? 0 : of->bound;
        for (size_t j = 0; j < n; j++)
            check(memcmp(&restored[j], &of->values[j], sizeof *restored) == 0 ||
                      fabs((double)restored[j] - (double)of->values[j]) <= bound,
                  "keep the bound");
        free(restored);
        H5Sclose(memory);
        H5Sclose(space);
        H5Dclose(dataset);
    }
    H5Fclose(file);
}

static void measure(int format, int is_whole, int repeat)
{
    char own[4096], joint[4096];
    snprintf(own, sizeof own, "%s/part.%d.h5", folder, me);
    snprintf(joint, sizeof joint, "%s/joint.h5", folder);
    if (me == 0)
        unlink(joint);
    unlink(own);
    /* So that what was freed before is not written to the storage meanwhile. */
    sync();
    times spent = {0, 0, 0, 0}, most;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    write_file(is_whole ? joint : own, format, is_whole, is_whole ? MPI_COMM_WORLD : MPI_COMM_SELF, &spent);
    const double synced = MPI_Wtime();
    if (!is_whole)
        sync_file(own);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) {
        if (!is_whole)
            write_virtual(joint);
        sync_file(joint);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    spent.sync = MPI_Wtime() - synced;
    const double total = MPI_Wtime() - begin;
    MPI_Reduce(&spent, &most, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    long long bytes = is_whole ? 0 : size_of(own), sum;
    MPI_Reduce(&bytes, &sum, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (repeat == 0)
        verify(joint, format);
    if (me == 0) {
        printf("{\"ranks\": %d, \"format\": \"%s\", \"mode\": \"%s\", \"seconds\": %.4f, \"create_s\": %.4f, \"write_s\": %.4f, "
               "\"close_s\": %.4f, \"sync_s\": %.4f, \"bytes\": %lld}\n",
               n_ranks, NAMES[format], is_whole ? "one" : "multi", total, most.create, most.write, most.close, most.sync,
               sum + size_of(joint));
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    check(argc > 5 && argc <= 5 + MAX_FIELDS, "usage: hdf5_modes FOLDER REPEATS REL PRESET FIELD...");
    folder = argv[1];
    rel = atof(argv[3]);
    preset = argv[4];
    n_fields = argc - 5;
    for (int i = 0; i < n_fields; i++)
        load(&fields[i], argv[5 + i]);
    const int n_ways = 2 * N_FORMATS;
    for (int repeat = 0; repeat < atoi(argv[2]); repeat++)
        for (int i = 0; i < n_ways; i++) {
            /* 3 has no factor in common with the eight ways. */
            const int way = (i * 3 + repeat * 5) % n_ways;
            measure(way / 2, way % 2, repeat);
        }
    MPI_Finalize();
    return 0;
}
