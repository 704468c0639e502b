/* Every function with NULL, and the mistakes that C programs make: each is an error with a message, never a crash. Run under
 * valgrind, which also sees what is read or lost on the way. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pumice.h"

static int n_checks, n_failures;

/* Counts a check; a failure is printed with what the library said last. */
static void expect_(int holds, const char *text, int line)
{
    n_checks++;
    if (holds)
        return;
    n_failures++;
    printf("misuse.c:%d: not so: %s (%s)\n", line, text, pumice_last_error());
}
#define expect(what) expect_(what, #what, __LINE__)
/* A call that must fail with this status, and with a message that has this text. */
#define refused(call, kind, text) \
    expect((call) == PUMICE_STATUS_##kind && strstr(pumice_last_error(), text) != NULL)

static int n_puts;
static int put_fails(void *user, const void *bytes, size_t n_bytes)
{
    (void)bytes;
    (void)n_bytes;
    n_puts++;
    return *(int *)user;
}

static const size_t shape[] = {20, 30};
static float values[600], restored[600];

static void null_handles(void)
{
    size_t n = 7;
    double e = 7;
    int32_t kind = 7;
    const char *key = NULL, *text = NULL;
    pumice_buffer *buffer = NULL;
    pumice_reader *reader = NULL;
    pumice_writer *writer = NULL;

    pumice_config_free(NULL);
    pumice_decode_options_free(NULL);
    pumice_buffer_free(NULL);
    pumice_reader_free(NULL);
    pumice_writer_free(NULL);

    refused(pumice_config_add_bound(NULL, PUMICE_BOUND_ABS, 1), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_add_region(NULL, 2, shape, shape, PUMICE_BOUND_ABS, 1), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_bin(NULL, 2, shape), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_preset(NULL, "fast"), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_stable(NULL, PUMICE_STABLE_ON), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_threads(NULL, 1), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_fill(NULL, 1), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_range(NULL, 0, 1), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_set_chunk_shape(NULL, 2, shape), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_config_add_attribute(NULL, "a", "b"), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_decode_options_set_threads(NULL, 1), INVALID_ARGUMENT, "options is NULL");
    refused(pumice_decode_options_set_max_bytes(NULL, 1), INVALID_ARGUMENT, "options is NULL");

    expect(pumice_buffer_data(NULL) == NULL && pumice_buffer_size(NULL) == 0);
    refused(pumice_max_compressed_size(NULL, PUMICE_DTYPE_F32, 2, shape, &n), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_compress(NULL, PUMICE_DTYPE_F32, values, 2, shape, &buffer), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_compress_into(NULL, PUMICE_DTYPE_F32, values, 2, shape, restored, 9, &n), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_decompress(NULL, 5, NULL, PUMICE_DTYPE_F32, &buffer), INVALID_ARGUMENT, "bytes is NULL");
    refused(pumice_decompress(NULL, 0, NULL, PUMICE_DTYPE_F32, &buffer), TRUNCATED, "");
    refused(pumice_decompress_into(NULL, 5, NULL, PUMICE_DTYPE_F32, restored, 600), INVALID_ARGUMENT, "bytes is NULL");

    refused(pumice_reader_open_file(NULL, NULL, &reader), INVALID_ARGUMENT, "path is NULL");
    refused(pumice_reader_open_memory(NULL, 5, NULL, &reader), INVALID_ARGUMENT, "bytes is NULL");
    expect(pumice_reader_dtype(NULL) == 0 && pumice_reader_rank(NULL) == 0);
    expect(pumice_reader_shape(NULL) == NULL && pumice_reader_chunk_shape(NULL) == NULL);
    expect(pumice_reader_n_values(NULL) == 0 && pumice_reader_compressed_size(NULL) == 0);
    expect(pumice_reader_format_version(NULL) == 0 && pumice_reader_preset(NULL) == NULL);
    expect(isnan(pumice_reader_abs_bound(NULL)) && pumice_reader_n_bounds(NULL) == 0);
    expect(pumice_reader_n_fills(NULL) == 0 && pumice_reader_n_attributes(NULL) == 0);
    refused(pumice_reader_bound(NULL, 0, &kind, &e), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_fill(NULL, 0, &e), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_attribute(NULL, 0, &key, &text), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_read(NULL, PUMICE_DTYPE_F32, &buffer), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_read_into(NULL, PUMICE_DTYPE_F32, restored, 600), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_read_region(NULL, PUMICE_DTYPE_F32, 2, shape, shape, &buffer), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_read_region_into(NULL, PUMICE_DTYPE_F32, 2, shape, shape, restored, 600), INVALID_ARGUMENT,
            "reader is NULL");
    refused(pumice_reader_check(NULL, PUMICE_DTYPE_F32, values, 600, &e), INVALID_ARGUMENT, "reader is NULL");

    refused(pumice_writer_create_file(NULL, NULL, PUMICE_DTYPE_F32, 1, shape, &writer), INVALID_ARGUMENT, "path is NULL");
    refused(pumice_writer_create_file("x.pum", NULL, PUMICE_DTYPE_F32, 1, shape, &writer), INVALID_ARGUMENT, "config is NULL");
    refused(pumice_writer_append_file(NULL, PUMICE_DTYPE_F32, 1, &writer), INVALID_ARGUMENT, "path is NULL");
    refused(pumice_writer_create_callback(NULL, NULL, NULL, PUMICE_DTYPE_F32, 1, shape, &writer), INVALID_ARGUMENT, "put is NULL");
    refused(pumice_writer_write(NULL, values, 30), INVALID_ARGUMENT, "writer is NULL");
    refused(pumice_writer_finish(NULL, NULL), INVALID_ARGUMENT, "writer is NULL");

    /* Nothing was written where it failed. */
    expect(n == 7 && e == 7 && kind == 7 && key == NULL && text == NULL);
    expect(buffer == NULL && reader == NULL && writer == NULL);
}

static void wrong_wishes(void)
{
    const size_t huge[] = {(size_t)-1, (size_t)-1}, rank_9[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    size_t n = 0;
    pumice_buffer *buffer = NULL;
    pumice_writer *writer = NULL;

    expect(pumice_config_new(7, 1) == NULL && strstr(pumice_last_error(), "unknown kind of bound 7") != NULL);
    expect(pumice_config_new(-1, 1) == NULL);
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, 0.1);
    refused(pumice_config_add_bound(config, 99, 1), INVALID_ARGUMENT, "unknown kind of bound 99");
    refused(pumice_config_set_preset(config, "quick"), INVALID_ARGUMENT, "known: fast");
    refused(pumice_config_set_preset(config, NULL), INVALID_ARGUMENT, "preset is NULL");
    refused(pumice_config_set_preset(config, "\xff"), INVALID_ARGUMENT, "UTF-8");
    refused(pumice_config_add_attribute(config, NULL, "b"), INVALID_ARGUMENT, "key is NULL");
    refused(pumice_config_add_attribute(config, "a", NULL), INVALID_ARGUMENT, "value is NULL");
    refused(pumice_config_set_chunk_shape(config, 2, NULL), INVALID_ARGUMENT, "chunk_shape is NULL");
    refused(pumice_config_set_bin(config, 9, rank_9), INVALID_ARGUMENT, "8 axes");
    refused(pumice_config_add_region(config, 2, huge, huge, PUMICE_BOUND_ABS, 1), INVALID_ARGUMENT, "too many");

    refused(pumice_compress(config, PUMICE_DTYPE_F32, values, 2, shape, NULL), INVALID_ARGUMENT, "buffer is NULL");
    refused(pumice_compress(config, PUMICE_DTYPE_F32, NULL, 2, shape, &buffer), INVALID_ARGUMENT, "values is NULL");
    refused(pumice_compress(config, PUMICE_DTYPE_F32, values, 2, NULL, &buffer), INVALID_ARGUMENT, "shape is NULL");
    refused(pumice_compress(config, 3, values, 2, shape, &buffer), INVALID_ARGUMENT, "unknown element type 3");
    refused(pumice_compress(config, PUMICE_DTYPE_F32, values, 2, huge, &buffer), INVALID_ARGUMENT, "too large");
    refused(pumice_compress(config, PUMICE_DTYPE_F32, values, 1, huge, &buffer), INVALID_ARGUMENT, "memory can hold");
    refused(pumice_compress(config, PUMICE_DTYPE_F32, values, 9, rank_9, &buffer), INVALID_ARGUMENT, "8 axes");
    refused(pumice_compress(config, PUMICE_DTYPE_F32, (char *)values + 1, 1, shape, &buffer), INVALID_ARGUMENT, "multiple of 4");
    refused(pumice_max_compressed_size(config, PUMICE_DTYPE_F32, 2, shape, NULL), INVALID_ARGUMENT, "n_bytes is NULL");
    refused(pumice_max_compressed_size(config, PUMICE_DTYPE_F32, 2, huge, &n), INVALID_ARGUMENT, "");
    refused(pumice_compress_into(config, PUMICE_DTYPE_F32, values, 2, shape, NULL, 9, &n), INVALID_ARGUMENT, "out is NULL");
    refused(pumice_compress_into(config, PUMICE_DTYPE_F32, values, 2, shape, restored, 9, &n), LIMIT_EXCEEDED,
            "pumice_max_compressed_size");
    refused(pumice_compress_into(config, PUMICE_DTYPE_F32, values, 2, shape, NULL, 0, &n), LIMIT_EXCEEDED, "0 bytes");
    pumice_config_free(config);

    const double wrong[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        config = pumice_config_new(PUMICE_BOUND_REL, wrong[i]);
        expect(pumice_compress(config, PUMICE_DTYPE_F32, values, 2, shape, &buffer) == PUMICE_STATUS_INVALID_ARGUMENT);
        pumice_config_free(config);
    }
    config = pumice_config_new(PUMICE_BOUND_REL, 1e-3);
    refused(pumice_writer_create_file("x.pum", config, PUMICE_DTYPE_F32, 1, shape, &writer), INVALID_ARGUMENT, "range");
    expect(pumice_config_set_range(config, 2, 1) == PUMICE_STATUS_OK);
    refused(pumice_writer_create_file("x.pum", config, PUMICE_DTYPE_F32, 1, shape, &writer), INVALID_ARGUMENT, "MIN <= MAX");
    refused(pumice_writer_create_file("no/such/folder/x.pum", config, PUMICE_DTYPE_F32, 1, shape, &writer), IO, "no folder");
    pumice_config_free(config);
    expect(buffer == NULL && writer == NULL && n == 0);
}

static void wrong_streams(void)
{
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, 0.1);
    pumice_buffer *buffer = NULL, *none = NULL;
    expect(pumice_config_add_attribute(config, "name", "ramp") == PUMICE_STATUS_OK);
    expect(pumice_compress(config, PUMICE_DTYPE_F32, values, 2, shape, &buffer) == PUMICE_STATUS_OK);
    pumice_config_free(config);
    unsigned char *bytes = pumice_buffer_data(buffer);
    size_t n = pumice_buffer_size(buffer);

    refused(pumice_decompress(bytes, n, NULL, PUMICE_DTYPE_F64, &none), INVALID_ARGUMENT, "read it as f32");
    refused(pumice_decompress(bytes, n, NULL, 0, &none), INVALID_ARGUMENT, "unknown element type 0");
    refused(pumice_decompress(bytes, n, NULL, PUMICE_DTYPE_F32, NULL), INVALID_ARGUMENT, "buffer is NULL");
    refused(pumice_decompress(bytes, n / 2, NULL, PUMICE_DTYPE_F32, &none), TRUNCATED, "");
    refused(pumice_decompress("not a stream at all", 19, NULL, PUMICE_DTYPE_F32, &none), CORRUPT, "magic");
    refused(pumice_decompress_into(bytes, n, NULL, PUMICE_DTYPE_F32, restored, 599), INVALID_ARGUMENT, "600");
    refused(pumice_decompress_into(bytes, n, NULL, PUMICE_DTYPE_F32, restored, (size_t)-1), INVALID_ARGUMENT, "memory can hold");
    refused(pumice_decompress_into(bytes, n, NULL, PUMICE_DTYPE_F32, NULL, 600), INVALID_ARGUMENT, "values is NULL");
    pumice_decode_options *options = pumice_decode_options_new();
    expect(pumice_decode_options_set_max_bytes(options, 100) == PUMICE_STATUS_OK);
    refused(pumice_decompress(bytes, n, options, PUMICE_DTYPE_F32, &none), LIMIT_EXCEEDED, "");
    pumice_decode_options_free(options);

    /* Each byte damaged in turn: an error, or, where only the message of a field is hurt, no wrong array. */
    int n_refused = 0;
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x55;
        n_refused += pumice_decompress(bytes, n, NULL, PUMICE_DTYPE_F32, &none) != PUMICE_STATUS_OK;
        bytes[i] ^= 0x55;
    }
    expect(n_refused == (int)n && none == NULL);

    pumice_reader *reader = NULL;
    refused(pumice_reader_open_memory(bytes, n, NULL, NULL), INVALID_ARGUMENT, "reader is NULL");
    refused(pumice_reader_open_file("no such file", NULL, &reader), IO, "no such file");
    expect(pumice_reader_open_memory(bytes, n, NULL, &reader) == PUMICE_STATUS_OK);
    int32_t kind;
    double e;
    const char *key, *text;
    refused(pumice_reader_bound(reader, 1, &kind, &e), INVALID_ARGUMENT, "there are 1 bounds");
    refused(pumice_reader_bound(reader, 0, NULL, &e), INVALID_ARGUMENT, "bound is NULL");
    refused(pumice_reader_fill(reader, 0, &e), INVALID_ARGUMENT, "there are 0 fill values");
    refused(pumice_reader_attribute(reader, (size_t)-1, &key, &text), INVALID_ARGUMENT, "there are 1 attributes");
    const size_t beyond[] = {19, 29}, two[] = {2, 2}, last[] = {(size_t)-1, 0};
    refused(pumice_reader_read_region(reader, PUMICE_DTYPE_F32, 2, beyond, two, &none), INVALID_ARGUMENT, "not within");
    refused(pumice_reader_read_region(reader, PUMICE_DTYPE_F32, 2, last, two, &none), INVALID_ARGUMENT, "too many");
    refused(pumice_reader_read_region(reader, PUMICE_DTYPE_F32, 1, beyond, two, &none), INVALID_ARGUMENT, "not within");
    refused(pumice_reader_read_region(reader, PUMICE_DTYPE_F32, 2, NULL, two, &none), INVALID_ARGUMENT, "start is NULL");
    refused(pumice_reader_read_region_into(reader, PUMICE_DTYPE_F32, 2, two, two, restored, 5), INVALID_ARGUMENT, "4 values");
    refused(pumice_reader_read_into(reader, PUMICE_DTYPE_F64, restored, 600), INVALID_ARGUMENT, "");
    refused(pumice_reader_check(reader, PUMICE_DTYPE_F32, values, 599, NULL), INVALID_ARGUMENT, "does not fit");
    values[77] += 0.5f;
    refused(pumice_reader_check(reader, PUMICE_DTYPE_F32, values, 600, &e), BOUND_BROKEN, "1 values are over");
    expect(e > 0.39 && e < 0.61);
    values[77] -= 0.5f;
    expect(pumice_reader_check(reader, PUMICE_DTYPE_F32, values, 600, &e) == PUMICE_STATUS_OK && e <= 0.1);
    pumice_reader_free(reader);
    pumice_buffer_free(buffer);
}

static void wrong_writers(void)
{
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, 0.1);
    pumice_writer *writer = NULL;
    int code = 0;
    expect(pumice_writer_create_callback(put_fails, &code, config, PUMICE_DTYPE_F32, 1, shape + 1, &writer) == PUMICE_STATUS_OK);
    refused(pumice_writer_write(writer, values, 31), INVALID_ARGUMENT, "whole number of rows of 30");
    refused(pumice_writer_write(writer, NULL, 30), INVALID_ARGUMENT, "values is NULL");
    expect(pumice_writer_write(writer, NULL, 0) == PUMICE_STATUS_OK);
    expect(pumice_writer_write(writer, values, 60) == PUMICE_STATUS_OK);
    code = 5;
    refused(pumice_writer_finish(writer, NULL), IO, "returned 5");
    expect(n_puts == 1);
    refused(pumice_writer_finish(writer, NULL), INVALID_ARGUMENT, "finished, or an earlier call");
    refused(pumice_writer_write(writer, values, 30), INVALID_ARGUMENT, "finished, or an earlier call");
    pumice_writer_free(writer);

    /* A writer that is freed before it is finished leaves nothing. */
    expect(pumice_writer_create_file("never.pum", config, PUMICE_DTYPE_F32, 1, shape + 1, &writer) == PUMICE_STATUS_OK);
    expect(pumice_writer_write(writer, values, 60) == PUMICE_STATUS_OK);
    pumice_writer_free(writer);
    FILE *file = fopen("never.pum", "rb");
    expect(file == NULL);
    if (file != NULL)
        fclose(file);
    refused(pumice_writer_append_file("never.pum", PUMICE_DTYPE_F32, 1, &writer), IO, "never.pum");
    pumice_config_free(config);
}

static void wrong_chunks(void)
{
    size_t n;
    const size_t count[] = {20, 31};
    unsigned int cd_values[PUMICE_HDF5_MAX_CD_VALUES];
    pumice_buffer *buffer = NULL;
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, 1e-3);
    refused(pumice_hdf5_cd_values(NULL, cd_values, PUMICE_HDF5_MAX_CD_VALUES, &n), INVALID_ARGUMENT, "config is NULL");
    expect(pumice_hdf5_cd_values(config, cd_values, PUMICE_HDF5_MAX_CD_VALUES, &n) == PUMICE_STATUS_OK);
    /* Those of the user do not say what chunks are like. What HDF5 has of a dataset of 20 x 30 floats does. */
    refused(pumice_hdf5_compress_chunk(cd_values, n, values, 2, shape, sizeof values, 1, &buffer), INVALID_ARGUMENT,
            "created dataset");
    const unsigned int of_dataset[] = {cd_values[0] | 1u << 31, cd_values[1], cd_values[2], 4, 2, 20, 0, 30, 0};
    const size_t all = sizeof of_dataset / sizeof *of_dataset;
    refused(pumice_hdf5_compress_chunk(NULL, 5, values, 2, shape, sizeof values, 1, &buffer), INVALID_ARGUMENT,
            "cd_values is NULL");
    refused(pumice_hdf5_compress_chunk(of_dataset, all, NULL, 2, shape, sizeof values, 1, &buffer), INVALID_ARGUMENT,
            "values is NULL");
    refused(pumice_hdf5_compress_chunk(of_dataset, all, values, 2, NULL, sizeof values, 1, &buffer), INVALID_ARGUMENT,
            "count is NULL");
    refused(pumice_hdf5_compress_chunk(of_dataset, all, values, 2, shape, sizeof values, 1, NULL), INVALID_ARGUMENT,
            "buffer is NULL");
    refused(pumice_hdf5_compress_chunk(of_dataset, all, values, 2, count, sizeof values, 1, &buffer), INVALID_ARGUMENT,
            "no part of a chunk");
    refused(pumice_hdf5_compress_chunk(of_dataset, all, values, 2, shape, 2396, 1, &buffer), INVALID_ARGUMENT,
            "2400 bytes");
    refused(pumice_hdf5_compress_chunk(of_dataset, all - 1, values, 2, shape, sizeof values, 1, &buffer), INVALID_ARGUMENT,
            "too few");
    expect(buffer == NULL);
    expect(pumice_hdf5_compress_chunk(of_dataset, all, values, 2, shape, sizeof values, 1, &buffer) == PUMICE_STATUS_OK);
    expect(pumice_decompress_into(pumice_buffer_data(buffer), pumice_buffer_size(buffer), NULL, PUMICE_DTYPE_F32, restored,
                                  600) == PUMICE_STATUS_OK);
    for (int i = 0; i < 600; i++)
        expect(fabs((double)restored[i] - (double)values[i]) <= 1e-3);
    pumice_buffer_free(buffer);
    pumice_config_free(config);
}

int main(void)
{
    for (int i = 0; i < 600; i++)
        values[i] = 0.37f * (float)i;
    char version[40];
    snprintf(version, sizeof version, "%d.%d.%d", PUMICE_VERSION_MAJOR, PUMICE_VERSION_MINOR, PUMICE_VERSION_PATCH);
    expect(strcmp(version, pumice_version()) == 0);
    expect(strcmp(pumice_last_error(), "") == 0);
    refused(pumice_refuse("the axes are wrong"), INVALID_ARGUMENT, "the axes are wrong");
    refused(pumice_refuse(NULL), INVALID_ARGUMENT, "message is NULL");
    null_handles();
    wrong_wishes();
    wrong_streams();
    wrong_writers();
    wrong_chunks();
    printf("%d checks, %d failures\n", n_checks, n_failures);
    return n_failures == 0 && n_checks > 100 ? EXIT_SUCCESS : EXIT_FAILURE;
}
