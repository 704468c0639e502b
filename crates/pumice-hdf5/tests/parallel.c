/* Several ranks write their rows of one dataset collectively through the filter. Then each rank reads the rows of its
 * neighbour. Build with mpicc and the parallel HDF5; run: mpirun -n 2 ./parallel FILE, with HDF5_PLUGIN_PATH set. */
#include <hdf5.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>

enum { ROWS = 70, COLUMNS = 90, FILTER = 480 };

static float value(hsize_t row, hsize_t column) { return 280.0f + 10.0f * sinf(0.1f * row) + cosf(0.2f * column); }

static void check(int ok, const char *what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, n_ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    check(argc == 2, "usage: parallel FILE");

    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    check(file >= 0, "create the file");

    /* An absolute bound of 0.25 with the preset `fast` (docs/hdf5.md). Ranks share chunks: 70 rows each, chunks of 32. */
    const unsigned cd_values[3] = {0x00010101, 0x3fd00000, 0};
    const hsize_t shape[2] = {(hsize_t)ROWS * n_ranks, COLUMNS}, chunk[2] = {32, 40};
    hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, 2, chunk);
    check(H5Pset_filter(properties, FILTER, H5Z_FLAG_MANDATORY, 3, cd_values) >= 0, "find the filter");
    hid_t space = H5Screate_simple(2, shape, NULL);
    hid_t dataset = H5Dcreate2(file, "t", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    check(dataset >= 0, "create the dataset");

    static float values[ROWS][COLUMNS];
    hsize_t start[2] = {(hsize_t)rank * ROWS, 0}, count[2] = {ROWS, COLUMNS};
    for (hsize_t i = 0; i < ROWS; i++)
        for (hsize_t j = 0; j < COLUMNS; j++) values[i][j] = value(start[0] + i, j);
    hid_t memory = H5Screate_simple(2, count, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    check(H5Dwrite(dataset, H5T_NATIVE_FLOAT, memory, space, transfer, values) >= 0, "write collectively");
    H5Dclose(dataset);
    check(H5Fclose(file) >= 0, "close the file");

    file = H5Fopen(argv[1], H5F_ACC_RDONLY, access);
    dataset = H5Dopen2(file, "t", H5P_DEFAULT);
    start[0] = (hsize_t)((rank + 1) % n_ranks) * ROWS;
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    check(H5Dread(dataset, H5T_NATIVE_FLOAT, memory, space, transfer, values) >= 0, "read collectively");
    double largest = 0;
    for (hsize_t i = 0; i < ROWS; i++)
        for (hsize_t j = 0; j < COLUMNS; j++)
            largest = fmax(largest, fabs((double)values[i][j] - value(start[0] + i, j)));
    check(largest <= 0.25, "keep the bound");
    check(H5Dget_storage_size(dataset) < shape[0] * shape[1] * sizeof(float) / 2, "compress");
    H5Dclose(dataset);
    H5Fclose(file);
    if (rank == 0) printf("%d ranks, largest error %g\n", n_ranks, largest);
    MPI_Finalize();
    return 0;
}
