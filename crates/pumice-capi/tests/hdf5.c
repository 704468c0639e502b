/* Writes a dataset by HDF5, compressed with the parameters that pumice_hdf5_cd_values() gives, or reads it:
 * hdf5 write|read FILE. A second dataset has HDF5's shuffle before the filter. A checksum before it is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>
#include <pumice.h>

#define ROWS 60
#define COLUMNS 50
#define BOUND 1e-3

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s failed; Pumice: %s\n", what, pumice_last_error());
        exit(EXIT_FAILURE);
    }
}

/* Properties of a dataset whose chunks go through the filter; `before` comes first. */
static hid_t properties(herr_t (*before)(hid_t))
{
    const hsize_t chunk[] = {30, COLUMNS};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    check(H5Pset_chunk(dcpl, 2, chunk) >= 0, "H5Pset_chunk");
    if (before)
        check(before(dcpl) >= 0, "a filter of HDF5");
    unsigned int cd_values[PUMICE_HDF5_MAX_CD_VALUES];
    size_t n;
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, BOUND);
    check(pumice_hdf5_cd_values(config, cd_values, PUMICE_HDF5_MAX_CD_VALUES, &n) == PUMICE_STATUS_OK,
          "pumice_hdf5_cd_values");
    pumice_config_free(config);
    check(H5Pset_filter(dcpl, PUMICE_HDF5_FILTER_ID, H5Z_FLAG_OPTIONAL, n, cd_values) >= 0, "H5Pset_filter");
    return dcpl;
}

static void write_dataset(hid_t file, const char *name, herr_t (*before)(hid_t), const float *values)
{
    const hsize_t extents[] = {ROWS, COLUMNS};
    hid_t space = H5Screate_simple(2, extents, NULL), dcpl = properties(before);
    hid_t dataset = H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    check(dataset >= 0, "H5Dcreate2");
    check(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, "H5Dwrite");
    check(H5Dclose(dataset) >= 0, "H5Dclose");
    H5Pclose(dcpl);
    H5Sclose(space);
}

static void read_dataset(hid_t file, const char *name, const float *values)
{
    static float restored[ROWS * COLUMNS];
    hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    check(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, restored) >= 0, "H5Dread");
    check(H5Dget_storage_size(dataset) * 4 < sizeof restored, "compression");
    H5Dclose(dataset);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        check(fabs((double)restored[i] - (double)values[i]) <= BOUND, "the bound");
}

int main(int argc, char **argv)
{
    static float values[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = sinf(0.01f * (float)i) + 0.02f * (float)(i % COLUMNS);
    check(argc == 3, "the command line");
    if (strcmp(argv[1], "read") == 0) {
        hid_t file = H5Fopen(argv[2], H5F_ACC_RDONLY, H5P_DEFAULT);
        read_dataset(file, "plain", values);
        read_dataset(file, "shuffled", values);
        return H5Fclose(file) < 0;
    }
    hid_t file = H5Fcreate(argv[2], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    write_dataset(file, "plain", NULL, values);
    write_dataset(file, "shuffled", H5Pset_shuffle, values);

    const hsize_t extents[] = {ROWS, COLUMNS};
    hid_t space = H5Screate_simple(2, extents, NULL), dcpl = properties(H5Pset_fletcher32), plain = properties(NULL), refused;
    H5E_BEGIN_TRY {
        refused = H5Dcreate2(file, "checksum", H5T_IEEE_F32LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    } H5E_END_TRY
    check(refused < 0, "the refusal of a checksum before the filter");
    H5E_BEGIN_TRY {
        refused = H5Dcreate2(file, "integers", H5T_STD_I32LE, space, H5P_DEFAULT, plain, H5P_DEFAULT);
    } H5E_END_TRY
    check(refused < 0, "the refusal of integers");
    H5Pclose(dcpl);
    H5Pclose(plain);
    H5Sclose(space);
    return H5Fclose(file) < 0;
}
