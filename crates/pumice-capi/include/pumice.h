/* Pumice: error-bounded compression of floating-point arrays.
 *
 * |x - x'| <= bound for every finite value; NaN, infinities and fill values come back bit for bit.
 *
 * Made from the Rust source by `cargo xtask header`; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Rules that hold for all functions:
 * - Arrays are in C order: extents are given slowest axis first, the last axis varies fastest.
 * - A function that can fail returns a pumice_status, of which PUMICE_STATUS_OK is 0. Outputs are written only on
 *   success. pumice_last_error() then says what went wrong.
 * - Pointers may not be NULL where nothing else is said, but for arrays of 0 elements. NULL, an unknown number or a
 *   misaligned array give PUMICE_STATUS_INVALID_ARGUMENT. What cannot be checked is up to the caller: arrays have as
 *   many elements as the call says, text ends with a NUL, and handles are from this library and not freed yet.
 * - Handles are freed by the function of their name that ends in _free, which takes NULL too. A config, options or a
 *   reader may be used by several threads at once as long as none changes or frees it; a writer by one at a time.
 */

#ifndef PUMICE_H
#define PUMICE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of this header; pumice_version() has that of the library.
 */
#define PUMICE_VERSION_MAJOR 0

/**
 * See PUMICE_VERSION_MAJOR.
 */
#define PUMICE_VERSION_MINOR 1

/**
 * See PUMICE_VERSION_MAJOR.
 */
#define PUMICE_VERSION_PATCH 0

/**
 * The filter's number in HDF5, from the range for testing.
 */
#define PUMICE_HDF5_FILTER_ID 480

/**
 * As many cd_values as any config has, and some more for later releases.
 */
#define PUMICE_HDF5_MAX_CD_VALUES 32

/**
 * How a call ended. The numbers are also the exit codes of the command `pumice`, and never change.
 */
enum pumice_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Success.
     */
    PUMICE_STATUS_OK = 0,
    /**
     * Some value differs by more than the bound (only pumice_reader_check() says so).
     */
    PUMICE_STATUS_BOUND_BROKEN = 1,
    /**
     * The call asked for something impossible or contradictory.
     */
    PUMICE_STATUS_INVALID_ARGUMENT = 2,
    /**
     * The stream or the request is valid, but needs a newer release or a feature that this build lacks.
     */
    PUMICE_STATUS_UNSUPPORTED = 3,
    /**
     * The bytes are not a Pumice stream, or were damaged.
     */
    PUMICE_STATUS_CORRUPT = 4,
    /**
     * The stream ends too early.
     */
    PUMICE_STATUS_TRUNCATED = 5,
    /**
     * Reading or writing failed.
     */
    PUMICE_STATUS_IO = 6,
    /**
     * The call needs more memory than the limit, or than the capacity of the output.
     */
    PUMICE_STATUS_LIMIT_EXCEEDED = 7,
    /**
     * An accelerator is missing or failed.
     */
    PUMICE_STATUS_DEVICE = 8,
    /**
     * An error in Pumice itself: please report it. Handles of the call may only be freed.
     */
    PUMICE_STATUS_INTERNAL = 101,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pumice_status pumice_status;
#else
typedef int32_t pumice_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Type of the values of an array. The numbers are those of the file format.
 */
enum pumice_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * float: IEEE 754 binary32.
     */
    PUMICE_DTYPE_F32 = 1,
    /**
     * double: IEEE 754 binary64.
     */
    PUMICE_DTYPE_F64 = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pumice_dtype pumice_dtype;
#else
typedef int32_t pumice_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Kind of an error bound, to which a number e belongs. The numbers are those of the file format.
 */
enum pumice_bound
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Every bit is kept; e is ignored.
     */
    PUMICE_BOUND_LOSSLESS = 0,
    /**
     * |x - x'| <= e for every finite value.
     */
    PUMICE_BOUND_ABS = 1,
    /**
     * |x - x'| <= e * (max - min) over the finite values that are not fill values.
     */
    PUMICE_BOUND_REL = 2,
    /**
     * |x - x'| <= e * |x| for every finite value. Zeros stay zeros.
     */
    PUMICE_BOUND_PW_REL = 3,
    /**
     * A peak signal to noise ratio of at least e dB. Like all targets (PSNR, L2, RATIO) it is found by a search that
     * compresses several times, and needs the whole array: a writer cannot have it.
     */
    PUMICE_BOUND_PSNR = 4,
    /**
     * An L2 norm of the error of at most e.
     */
    PUMICE_BOUND_L2 = 5,
    /**
     * A stream at least e times smaller than the values, with no more error than that needs.
     */
    PUMICE_BOUND_RATIO = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pumice_bound pumice_bound;
#else
typedef int32_t pumice_bound;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whether values that are restored, and compressed again under the same absolute bound, keep every bit, whatever the
 * chunks and the preset.
 */
enum pumice_stable
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * They may move by up to the bound each time: the best ratio, and the default of pumice_compress() and the like. For
     * pumice_hdf5_cd_values(), a config without a stable mode has PUMICE_STABLE_AUTO.
     */
    PUMICE_STABLE_OFF = 0,
    /**
     * They do. For PUMICE_BOUND_ABS and PUMICE_BOUND_REL.
     */
    PUMICE_STABLE_ON = 1,
    /**
     * They do in chunks where an estimate says that it costs less than 2 % of the size.
     */
    PUMICE_STABLE_AUTO = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pumice_stable pumice_stable;
#else
typedef int32_t pumice_stable;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Memory that the library allocated for a result.
 */
typedef struct pumice_buffer pumice_buffer;

/**
 * How to compress: an error bound, and settings that all have good defaults.
 */
typedef struct pumice_config pumice_config;

/**
 * How to decode. Wherever a function takes options, NULL means the defaults.
 */
typedef struct pumice_decode_options pumice_decode_options;

/**
 * An open stream, from which any region can be read.
 */
typedef struct pumice_reader pumice_reader;

/**
 * An array that is being written.
 */
typedef struct pumice_writer pumice_writer;

/**
 * Takes the next bytes of a stream; returns 0 if all went well. Called in the thread, and during the call, of the writer's
 * functions; it must not throw exceptions.
 */
typedef int (*pumice_write_callback)(void *user, const void *bytes, size_t n_bytes);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Version of the library, such as "0.1.0".
 */
const char *pumice_version(void);

/**
 * What went wrong in the last call of this thread that failed, and what to do about it; "" if none did. Valid until
 * the thread's next call that fails.
 */
const char *pumice_last_error(void);

/**
 * For bindings to other languages, which check arguments that C does not have: `message` becomes that of
 * pumice_last_error(). Returns PUMICE_STATUS_INVALID_ARGUMENT.
 */
pumice_status pumice_refuse(const char *message);

/**
 * A config with this bound: `bound` is a pumice_bound. NULL if that is unknown. Whether the number `e` is valid is
 * checked when the config is used.
 */
struct pumice_config *pumice_config_new(int32_t bound,
                                        double e);

/**
 * Frees a config.
 */
void pumice_config_free(struct pumice_config *config);

/**
 * Asks for one more bound, so that all of them hold.
 */
pumice_status pumice_config_add_bound(struct pumice_config *config, int32_t bound, double e);

/**
 * Asks for one more bound in a box of the array, which starts at `start` and has `count` positions along each axis. A
 * relative one refers to the range of the whole array. Up to 1024 boxes; targets are not possible.
 */
pumice_status pumice_config_add_region(struct pumice_config *config,
                                       size_t rank,
                                       const size_t *start,
                                       const size_t *count,
                                       int32_t bound,
                                       double e);

/**
 * Keeps only the means of bins, which have `factors` values along each axis, outside of the boxes of
 * pumice_config_add_region().
 */
pumice_status pumice_config_set_bin(struct pumice_config *config, size_t rank, const size_t *factors);

/**
 * The pipeline: "fast", "balanced", "small" (the default) or "max", from fastest to smallest; or that of a paper.
 */
pumice_status pumice_config_set_preset(struct pumice_config *config,
                                       const char *preset);

/**
 * Whether values that are compressed again keep their bits: `stable` is a pumice_stable.
 */
pumice_status pumice_config_set_stable(struct pumice_config *config, int32_t stable);

/**
 * Worker threads; 0, the default, means one per core. The bytes do not depend on it.
 */
pumice_status pumice_config_set_threads(struct pumice_config *config, size_t threads);

/**
 * The value that means "no data" (NaN always does): kept bit for bit and left out of ranges. Without it a repeated
 * extreme value far away from all others is taken for one. Replaces those given before.
 */
pumice_status pumice_config_set_fill(struct pumice_config *config,
                                     double value);

/**
 * As pumice_config_set_fill(), with `n` values, at most 8; NaN is kept without being given.
 */
pumice_status pumice_config_set_fills(struct pumice_config *config, size_t n, const double *values);

/**
 * The value range that PUMICE_BOUND_REL refers to, instead of the data's own. A writer needs it for such a bound.
 */
pumice_status pumice_config_set_range(struct pumice_config *config,
                                      double min,
                                      double max);

/**
 * The extents of chunks: the unit of partial reads and of parallel work. By default, chunks have roughly a million
 * values.
 */
pumice_status pumice_config_set_chunk_shape(struct pumice_config *config,
                                            size_t rank,
                                            const size_t *chunk_shape);

/**
 * Adds a note that is stored with the array, such as a name or units; both in UTF-8.
 */
pumice_status pumice_config_add_attribute(struct pumice_config *config, const char *key, const char *value);

/**
 * The defaults: one thread per core, and a memory limit of 16 GiB.
 */
struct pumice_decode_options *pumice_decode_options_new(void);

/**
 * Frees options.
 */
void pumice_decode_options_free(struct pumice_decode_options *options);

/**
 * Worker threads; 0, the default, means one per core.
 */
pumice_status pumice_decode_options_set_threads(struct pumice_decode_options *options, size_t threads);

/**
 * Most memory that one call may allocate for decoded values and to decode them, not counting memory of the caller and 16
 * MiB beside the values; a call that would need more fails with PUMICE_STATUS_LIMIT_EXCEEDED.
 */
pumice_status pumice_decode_options_set_max_bytes(struct pumice_decode_options *options,
                                                  uint64_t max_bytes);

/**
 * Where the memory starts: the bytes of a stream, or values of the type that was asked for. It may be written to. NULL
 * for NULL.
 */
void *pumice_buffer_data(const struct pumice_buffer *buffer);

/**
 * Size of the memory in bytes. 0 for NULL.
 */
size_t pumice_buffer_size(const struct pumice_buffer *buffer);

/**
 * Frees a buffer and its memory.
 */
void pumice_buffer_free(struct pumice_buffer *buffer);

/**
 * The parameters that H5Pset_filter() and nc_def_var_filter() take for the filter of HDF5: writes `n` of them to
 * `cd_values`, which has room for `capacity`, such as PUMICE_HDF5_MAX_CD_VALUES. The filter compresses each chunk of a
 * dataset on its own: several bounds, regions, bins, a chunk shape and attributes are refused, and threads ignored.
 * PUMICE_STATUS_LIMIT_EXCEEDED if there are more.
 */
pumice_status pumice_hdf5_cd_values(const struct pumice_config *config,
                                    unsigned int *cd_values,
                                    size_t capacity,
                                    size_t *n);

/**
 * Compresses a chunk of a dataset, to a new buffer with the bytes that the filter would store: for H5Dwrite_chunk() with a
 * filter mask of 0, so that chunks can be compressed by any threads and ranks. `cd_values` are those of the created dataset,
 * by H5Pget_filter_by_id2(), to which the filter has added type and shape. `values` are the part of the chunk that lies within
 * the dataset, in its type and byte order; `count` are the extents of the part, less than those of the chunk only at the edge
 * of the dataset. The rest is padded as HDF5 does it. `threads` as for a config.
 */
pumice_status pumice_hdf5_compress_chunk(const unsigned int *cd_values,
                                         size_t n_cd_values,
                                         const void *values,
                                         size_t rank,
                                         const size_t *count,
                                         size_t n_bytes,
                                         size_t threads,
                                         struct pumice_buffer **buffer);

/**
 * An upper bound on the compressed size of an array of this type and shape, whatever its values: the capacity that
 * pumice_compress_into() needs. A little more than the size of the values.
 */
pumice_status pumice_max_compressed_size(const struct pumice_config *config,
                                         int32_t dtype,
                                         size_t rank,
                                         const size_t *shape,
                                         size_t *n_bytes);

/**
 * Compresses `values`, an array of this type (a pumice_dtype) and shape, to a new buffer.
 */
pumice_status pumice_compress(const struct pumice_config *config,
                              int32_t dtype,
                              const void *values,
                              size_t rank,
                              const size_t *shape,
                              struct pumice_buffer **buffer);

/**
 * Compresses `values` as pumice_compress() does, but to memory of the caller, and says how many of its bytes were
 * written. PUMICE_STATUS_LIMIT_EXCEEDED if `capacity` is too small; pumice_max_compressed_size() is always enough.
 */
pumice_status pumice_compress_into(const struct pumice_config *config,
                                   int32_t dtype,
                                   const void *values,
                                   size_t rank,
                                   const size_t *shape,
                                   void *out,
                                   size_t capacity,
                                   size_t *n_bytes);

/**
 * Decompresses a stream to a new buffer; `dtype` is the type that its values must have. To get the shape, open a
 * pumice_reader.
 */
pumice_status pumice_decompress(const void *bytes,
                                size_t n_bytes,
                                const struct pumice_decode_options *options,
                                int32_t dtype,
                                struct pumice_buffer **buffer);

/**
 * Decompresses a stream to memory of the caller, for exactly as many values as the stream has. After a failure its
 * contents are undefined.
 */
pumice_status pumice_decompress_into(const void *bytes,
                                     size_t n_bytes,
                                     const struct pumice_decode_options *options,
                                     int32_t dtype,
                                     void *values,
                                     size_t n_values);

/**
 * Opens a file.
 */
pumice_status pumice_reader_open_file(const char *path,
                                      const struct pumice_decode_options *options,
                                      struct pumice_reader **reader);

/**
 * Opens a stream in memory, which must not change until the reader is freed.
 */
pumice_status pumice_reader_open_memory(const void *bytes,
                                        size_t n_bytes,
                                        const struct pumice_decode_options *options,
                                        struct pumice_reader **reader);

/**
 * Closes a stream.
 */
void pumice_reader_free(struct pumice_reader *reader);

/**
 * Type of the values, a pumice_dtype; 0 for NULL.
 */
int32_t pumice_reader_dtype(const struct pumice_reader *reader);

/**
 * Number of axes, at most 8; 0 for NULL.
 */
size_t pumice_reader_rank(const struct pumice_reader *reader);

/**
 * The extent of each axis, slowest first. Valid until the reader is freed; NULL for NULL.
 */
const size_t *pumice_reader_shape(const struct pumice_reader *reader);

/**
 * The extents of chunks: regions that are aligned to chunks are read with the least work. Valid until the reader is freed; NULL
 * for NULL.
 */
const size_t *pumice_reader_chunk_shape(const struct pumice_reader *reader);

/**
 * Number of values; 0 for NULL.
 */
size_t pumice_reader_n_values(const struct pumice_reader *reader);

/**
 * Size of the stream in bytes; 0 for NULL.
 */
uint64_t pumice_reader_compressed_size(const struct pumice_reader *reader);

/**
 * Version of the file format that the stream is written in; 0 for NULL.
 */
uint32_t pumice_reader_format_version(const struct pumice_reader *reader);

/**
 * The preset that the stream was written with. Valid until the reader is freed; NULL for NULL.
 */
const char *pumice_reader_preset(const struct pumice_reader *reader);

/**
 * 1 if the stream was written with PUMICE_STABLE_ON, else 0; 0 for NULL.
 */
int32_t pumice_reader_is_stable(const struct pumice_reader *reader);

/**
 * The absolute error bound that holds for all values: 0 if lossless, infinite if there is only a bound relative to each
 * value. NaN for NULL.
 */
double pumice_reader_abs_bound(const struct pumice_reader *reader);

/**
 * Number of bounds that were asked for; 0 for NULL.
 */
size_t pumice_reader_n_bounds(const struct pumice_reader *reader);

/**
 * A bound that was asked for, by its index: its kind, a pumice_bound, and its number.
 */
pumice_status pumice_reader_bound(const struct pumice_reader *reader,
                                  size_t index,
                                  int32_t *bound,
                                  double *e);

/**
 * Number of fill values beside NaN and infinities, which are always kept; 0 for NULL.
 */
size_t pumice_reader_n_fills(const struct pumice_reader *reader);

/**
 * A fill value, by its index. NaN is one if the stream lists it.
 */
pumice_status pumice_reader_fill(const struct pumice_reader *reader, size_t index, double *value);

/**
 * Number of attributes; 0 for NULL.
 */
size_t pumice_reader_n_attributes(const struct pumice_reader *reader);

/**
 * An attribute, by its index. Both texts are valid until the reader is freed.
 */
pumice_status pumice_reader_attribute(const struct pumice_reader *reader,
                                      size_t index,
                                      const char **key,
                                      const char **value);

/**
 * Decodes the whole array to a new buffer; `dtype` is the type that the values must have.
 */
pumice_status pumice_reader_read(const struct pumice_reader *reader,
                                 int32_t dtype,
                                 struct pumice_buffer **buffer);

/**
 * Decodes the whole array to memory of the caller, for exactly as many values as the array has. After a failure its
 * contents are undefined.
 */
pumice_status pumice_reader_read_into(const struct pumice_reader *reader,
                                      int32_t dtype,
                                      void *values,
                                      size_t n_values);

/**
 * Decodes a box of the array, which starts at `start` and has `count` positions along each axis, to a new buffer. Only
 * the chunks that it touches are decoded.
 */
pumice_status pumice_reader_read_region(const struct pumice_reader *reader,
                                        int32_t dtype,
                                        size_t rank,
                                        const size_t *start,
                                        const size_t *count,
                                        struct pumice_buffer **buffer);

/**
 * Decodes a box of the array to memory of the caller, for exactly as many values as the box has. After a failure its
 * contents are undefined.
 */
pumice_status pumice_reader_read_region_into(const struct pumice_reader *reader,
                                             int32_t dtype,
                                             size_t rank,
                                             const size_t *start,
                                             const size_t *count,
                                             void *values,
                                             size_t n_values);

/**
 * Compares the stream with the original array, of the same type and shape: PUMICE_STATUS_BOUND_BROKEN if any value is
 * further from the original than the stream's bound allows. The greatest error is written to `max_abs_error` in both
 * cases, unless that is NULL.
 */
pumice_status pumice_reader_check(const struct pumice_reader *reader,
                                  int32_t dtype,
                                  const void *original,
                                  size_t n_values,
                                  double *max_abs_error);

/**
 * Starts a file of rows of this shape: the array has one more axis, the slowest, whose extent is the number of rows. The bound must
 * not depend on the values: a relative one needs pumice_config_set_range(), targets are not possible. The file appears
 * under its name, or replaces an old one, only when the writer is finished.
 */
pumice_status pumice_writer_create_file(const char *path,
                                        const struct pumice_config *config,
                                        int32_t dtype,
                                        size_t row_rank,
                                        const size_t *row_shape,
                                        struct pumice_writer **writer);

/**
 * Appends to a file: adds rows with its bound, fill values and chunks. The file does not change until the writer is finished.
 * `threads` is the number of worker threads; 0 means one per core.
 */
pumice_status pumice_writer_append_file(const char *path,
                                        int32_t dtype,
                                        size_t threads,
                                        struct pumice_writer **writer);

/**
 * Starts a stream whose bytes go to `put`, in order, with `user` as its first argument.
 */
pumice_status pumice_writer_create_callback(pumice_write_callback put,
                                            void *user,
                                            const struct pumice_config *config,
                                            int32_t dtype,
                                            size_t row_rank,
                                            const size_t *row_shape,
                                            struct pumice_writer **writer);

/**
 * Adds rows: any whole number of them, given as the number of values. They are copied or encoded before the call returns.
 * After a failure other than PUMICE_STATUS_INVALID_ARGUMENT the writer can only be freed.
 */
pumice_status pumice_writer_write(struct pumice_writer *writer,
                                  const void *values,
                                  size_t n_values);

/**
 * Writes the remaining rows and completes the stream. Its size is written to `compressed_size`, unless that is NULL.
 * Afterwards the writer can only be freed.
 */
pumice_status pumice_writer_finish(struct pumice_writer *writer,
                                   uint64_t *compressed_size);

/**
 * Frees a writer. If it is not finished, it leaves no new file and does not change an old one.
 */
void pumice_writer_free(struct pumice_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PUMICE_H */
