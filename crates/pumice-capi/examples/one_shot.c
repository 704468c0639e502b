/* Compresses an array in memory, looks at the stream, and decodes all of it and a part. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pumice.h"

#define NZ 32
#define NY 48
#define NX 64

/* Ends the program unless a call went well; the exit code is that of the command `pumice`. */
static void check(pumice_status status)
{
    if (status != PUMICE_STATUS_OK) {
        fprintf(stderr, "error %d: %s\n", (int)status, pumice_last_error());
        exit(status);
    }
}

int main(void)
{
    static float field[NZ][NY][NX], restored[NZ][NY][NX];
    const size_t shape[] = {NZ, NY, NX};
    for (int z = 0; z < NZ; z++)
        for (int y = 0; y < NY; y++)
            for (int x = 0; x < NX; x++)
                field[z][y][x] = (float)(280.0 + 20.0 * sin(0.1 * x) * cos(0.07 * y) + 0.5 * z);
    field[3][4][5] = NAN; /* comes back as it is */

    /* A thousandth of the range of values, by the preset for speed; two threads. */
    pumice_config *config = pumice_config_new(PUMICE_BOUND_REL, 1e-3);
    check(pumice_config_set_preset(config, "balanced"));
    check(pumice_config_set_threads(config, 2));
    check(pumice_config_add_attribute(config, "units", "K"));

    /* Into memory of our own, which is large enough whatever the values are ... */
    size_t capacity, n_bytes;
    check(pumice_max_compressed_size(config, PUMICE_DTYPE_F32, 3, shape, &capacity));
    void *bytes = malloc(capacity);
    if (bytes == NULL)
        return EXIT_FAILURE;
    check(pumice_compress_into(config, PUMICE_DTYPE_F32, field, 3, shape, bytes, capacity, &n_bytes));
    printf("%zu bytes became %zu\n", sizeof field, n_bytes);
    check(pumice_decompress_into(bytes, n_bytes, NULL, PUMICE_DTYPE_F32, restored, NZ * NY * NX));

    /* ... or into memory of the library. */
    pumice_buffer *buffer;
    check(pumice_compress(config, PUMICE_DTYPE_F32, field, 3, shape, &buffer));
    if (pumice_buffer_size(buffer) != n_bytes)
        return EXIT_FAILURE;
    pumice_config_free(config);

    pumice_reader *reader;
    check(pumice_reader_open_memory(pumice_buffer_data(buffer), pumice_buffer_size(buffer), NULL, &reader));
    const size_t *extents = pumice_reader_shape(reader);
    printf("an array of %zu x %zu x %zu, |x - x'| <= %g\n", extents[0], extents[1], extents[2],
           pumice_reader_abs_bound(reader));

    /* One plane across the slowest axis: z = 3. */
    const size_t start[] = {3, 0, 0}, count[] = {1, NY, NX};
    float plane[NY][NX];
    check(pumice_reader_read_region_into(reader, PUMICE_DTYPE_F32, 3, start, count, plane, NY * NX));
    if (plane[7][8] != restored[3][7][8] || !isnan(plane[4][5]))
        return EXIT_FAILURE;

    double error;
    check(pumice_reader_check(reader, PUMICE_DTYPE_F32, field, NZ * NY * NX, &error));
    printf("the bound holds: the greatest error is %g\n", error);

    pumice_reader_free(reader);
    pumice_buffer_free(buffer);
    free(bytes);
    return 0;
}
