/* A simulation that writes each step to a file, goes on with the file later, and reads it back step by step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pumice.h"

#define N 96
#define STEPS 24

static void check(pumice_status status)
{
    if (status != PUMICE_STATUS_OK) {
        fprintf(stderr, "error %d: %s\n", (int)status, pumice_last_error());
        exit(status);
    }
}

/* One step of heat flowing through a plate. */
static void advance(double plate[N][N])
{
    static double old[N][N];
    memcpy(old, plate, sizeof old);
    for (int i = 1; i < N - 1; i++)
        for (int j = 1; j < N - 1; j++)
            plate[i][j] = 0.25 * (old[i - 1][j] + old[i + 1][j] + old[i][j - 1] + old[i][j + 1]);
}

int main(void)
{
    static double plate[N][N], step[N][N];
    static double history[STEPS][N][N];
    const char *path = "plate.pum";
    const size_t row_shape[] = {N, N};
    for (int j = 0; j < N; j++)
        plate[0][j] = 100.0;

    /* The bound must be known before the first value is: here 0.01 degrees. */
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, 0.01);
    const size_t chunk_shape[] = {4, N, N};
    check(pumice_config_set_chunk_shape(config, 3, chunk_shape));
    pumice_writer *writer;
    check(pumice_writer_create_file(path, config, PUMICE_DTYPE_F64, 2, row_shape, &writer));
    pumice_config_free(config);
    uint64_t n_bytes;
    for (int t = 0; t < STEPS; t++) {
        if (t == STEPS / 2) {
            /* The run ends here, and the next one goes on with the file. */
            check(pumice_writer_finish(writer, &n_bytes));
            pumice_writer_free(writer);
            check(pumice_writer_append_file(path, PUMICE_DTYPE_F64, 0, &writer));
        }
        advance(plate);
        memcpy(history[t], plate, sizeof plate);
        check(pumice_writer_write(writer, plate, N * N));
    }
    check(pumice_writer_finish(writer, &n_bytes));
    pumice_writer_free(writer);
    printf("%d steps of %d x %d: %zu bytes became %llu\n", STEPS, N, N, sizeof history, (unsigned long long)n_bytes);

    /* No call may take more than 4 MiB for decoded values. */
    pumice_decode_options *options = pumice_decode_options_new();
    check(pumice_decode_options_set_max_bytes(options, 4 << 20));
    pumice_reader *reader;
    check(pumice_reader_open_file(path, options, &reader));
    pumice_decode_options_free(options);
    for (size_t t = 0; t < pumice_reader_shape(reader)[0]; t++) {
        const size_t start[] = {t, 0, 0}, count[] = {1, N, N};
        check(pumice_reader_read_region_into(reader, PUMICE_DTYPE_F64, 3, start, count, step, N * N));
        for (int i = 0; i < N * N; i++) {
            double error = step[i / N][i % N] - history[t][i / N][i % N];
            if (!(error <= 0.01 && error >= -0.01))
                return EXIT_FAILURE;
        }
    }
    printf("every value of every step is within 0.01\n");
    pumice_reader_free(reader);
    return remove(path);
}
