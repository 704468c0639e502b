/* Pumice for MPI: arrays that the ranks of a program share out, in files and on their way.
 *
 * Link with libpumice_mpi instead of libpumice: it has the functions of pumice.h, too.
 *
 * Made from the Rust source by `cargo xtask header`; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The rules of pumice.h hold here, and these:
 * - Functions are collective: all ranks of the communicator call them, with the same arguments but for their own boxes and
 *   values. pumice_mpi_reader_read() and the properties of a reader are for one rank alone.
 * - If a rank fails, or has other arguments than the rest, all ranks get the same status and message. None hangs. A
 *   communicator or reader that is NULL is an error of the caller that only its own rank sees.
 * - Handles may be used by one thread at a time. MPI_Init_thread needs MPI_THREAD_FUNNELED at least.
 */

#ifndef PUMICE_MPI_H
#define PUMICE_MPI_H

#include <mpi.h>
#include "pumice.h"

/**
 * Whether values are compressed on their way.
 */
enum pumice_mpi_wire
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Where that is quicker, as far as a short measurement of link and code tells; otherwise values arrive as they are.
     */
    PUMICE_MPI_WIRE_AUTO = 0,
    /**
     * Always.
     */
    PUMICE_MPI_WIRE_COMPRESSED = 1,
    /**
     * Never.
     */
    PUMICE_MPI_WIRE_PLAIN = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pumice_mpi_wire pumice_mpi_wire;
#else
typedef int32_t pumice_mpi_wire;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How a sum is formed; its bits do not depend on it.
 */
enum pumice_mpi_sum_algorithm
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The quickest for what link and code give, as far as a short measurement tells.
     */
    PUMICE_MPI_SUM_ALGORITHM_AUTO = 0,
    /**
     * Compressed, around a ring: each rank sends and receives the least.
     */
    PUMICE_MPI_SUM_ALGORITHM_RING = 1,
    /**
     * Compressed, by halves: the fewest messages.
     */
    PUMICE_MPI_SUM_ALGORITHM_HALVING = 2,
    /**
     * Without compression, by the MPI library.
     */
    PUMICE_MPI_SUM_ALGORITHM_PLAIN = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum pumice_mpi_sum_algorithm pumice_mpi_sum_algorithm;
#else
typedef int32_t pumice_mpi_sum_algorithm;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A communicator of MPI that Pumice uses: a duplicate, so that its messages and those of the program stay apart.
 */
typedef struct pumice_mpi_comm pumice_mpi_comm;

/**
 * A Pumice file that all ranks of a communicator have open.
 */
typedef struct pumice_mpi_reader pumice_mpi_reader;

/**
 * A file to which all ranks together add rows, such as time steps.
 */
typedef struct pumice_mpi_writer pumice_mpi_writer;

/**
 * A file that is being written while the program goes on.
 */
typedef struct pumice_mpi_writing pumice_mpi_writing;

/**
 * What a transfer has cost and promises.
 */
typedef struct pumice_mpi_transfer {
    /**
     * The error of each value is at most this; 0 if all arrive as they are.
     */
    double abs_bound;
    /**
     * Bytes of values that this rank sent to others, compressed or not.
     */
    uint64_t sent_bytes;
    /**
     * 1 if values were compressed, otherwise 0.
     */
    int32_t is_compressed;
} pumice_mpi_transfer;

/**
 * What a sum has cost and promises.
 */
typedef struct pumice_mpi_sum {
    /**
     * How many vectors were added.
     */
    uint64_t n_vectors;
    /**
     * The error of each value of the sum is at most this.
     */
    double abs_bound;
    /**
     * Bytes of values that this rank sent, compressed or not.
     */
    uint64_t sent_bytes;
    /**
     * A pumice_mpi_sum_algorithm: the one that was used.
     */
    int32_t algorithm;
} pumice_mpi_sum;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Takes a duplicate of a communicator, together with all its ranks. NULL if that is not possible: MPI is not initialised,
 * or the communicator is MPI_COMM_NULL or between two groups.
 */
struct pumice_mpi_comm *pumice_mpi_comm_new(MPI_Comm comm);

/**
 * As pumice_mpi_comm_new(), for a communicator of Fortran.
 */
struct pumice_mpi_comm *pumice_mpi_comm_new_f(MPI_Fint comm);

/**
 * Frees the duplicate, together with all ranks; the communicator that it was made of stays. After MPI_Finalize it does
 * nothing but to free memory.
 */
void pumice_mpi_comm_free(struct pumice_mpi_comm *comm);

/**
 * Tells all ranks whether one of them has failed in something of its own: `status` is that of this rank, with the message
 * of pumice_last_error(). All get that of the lowest rank that has failed; PUMICE_STATUS_OK if none has. So a rank that
 * cannot go on does not leave the others waiting.
 */
pumice_status pumice_mpi_agree(const struct pumice_mpi_comm *comm,
                               int32_t status);

/**
 * Writes an array of this type (a pumice_dtype) and shape to one file, together with all ranks; it has the bytes that one
 * process writes, and appears under its name when it is complete. A rank gives the boxes that it has: `n_boxes`, which
 * may be 0, with `rank` numbers each in `starts` and `counts`, and a pointer each in `values`. All boxes of all ranks
 * make up the array. `n_bytes`, if not NULL, gets the size of the file.
 *
 * `wire` is a pumice_mpi_wire: PUMICE_MPI_WIRE_COMPRESSED gives those bytes. With PUMICE_MPI_WIRE_AUTO, values go to the file
 * as they are where a short measurement says that this is quicker; the file then is a Pumice file without loss.
 */
pumice_status pumice_mpi_write(const struct pumice_mpi_comm *comm,
                               const char *path,
                               const pumice_config *config,
                               int32_t wire,
                               int32_t dtype,
                               size_t rank,
                               const size_t *shape,
                               size_t n_boxes,
                               const size_t *starts,
                               const size_t *counts,
                               const void *const *values,
                               uint64_t *n_bytes);

/**
 * As pumice_mpi_write() with PUMICE_MPI_WIRE_COMPRESSED, while the program goes on: when this returns, the values may change.
 * pumice_mpi_writing_wait() ends it. Each rank needs memory for a copy of its values. If MPI_Init_thread gave
 * MPI_THREAD_MULTIPLE, the file is written meanwhile; otherwise values are compressed meanwhile, and written when the ranks
 * wait.
 */
pumice_status pumice_mpi_iwrite(const struct pumice_mpi_comm *comm,
                                const char *path,
                                const pumice_config *config,
                                int32_t dtype,
                                size_t rank,
                                const size_t *shape,
                                size_t n_boxes,
                                const size_t *starts,
                                const size_t *counts,
                                const void *const *values,
                                struct pumice_mpi_writing **writing);

/**
 * 1 if pumice_mpi_writing_wait() has nothing to wait for but other ranks, otherwise 0; for this rank alone.
 */
int32_t pumice_mpi_writing_is_done(const struct pumice_mpi_writing *writing);

/**
 * Waits until the file is in its place, together with all ranks, in the same order for all files. Frees `writing`, whatever
 * the status. `n_bytes`, if not NULL, gets the size of the file.
 */
pumice_status pumice_mpi_writing_wait(struct pumice_mpi_writing *writing,
                                      uint64_t *n_bytes);

/**
 * Starts a file of rows of this shape, together with all ranks: the array has one more axis, the slowest. The bound must not
 * depend on the values, as for pumice_writer_create_file(); the file has the bytes of one process, and appears under its
 * name when it is finished.
 */
pumice_status pumice_mpi_writer_create(const struct pumice_mpi_comm *comm,
                                       const char *path,
                                       const pumice_config *config,
                                       int32_t dtype,
                                       size_t row_rank,
                                       const size_t *row_shape,
                                       struct pumice_mpi_writer **writer);

/**
 * Adds rows to a file that exists, together with all ranks, with its bound and chunks. It does not change until the writer
 * is finished. `threads` are those of each rank; 0 means its share of the cores of its node.
 */
pumice_status pumice_mpi_writer_append(const struct pumice_mpi_comm *comm,
                                       const char *path,
                                       int32_t dtype,
                                       size_t threads,
                                       struct pumice_mpi_writer **writer);

/**
 * Adds `n_rows` rows, together with all ranks. Boxes are given as for pumice_mpi_write(); they have `rank` axes, one more
 * than a row, and the first of these rows has position 0.
 */
pumice_status pumice_mpi_writer_write(struct pumice_mpi_writer *writer,
                                      size_t n_rows,
                                      size_t rank,
                                      size_t n_boxes,
                                      const size_t *starts,
                                      const size_t *counts,
                                      const void *const *values);

/**
 * Puts the file in its place, together with all ranks, and frees the writer, whatever the status. `n_bytes`, if not NULL,
 * gets the size of the file.
 */
pumice_status pumice_mpi_writer_finish(struct pumice_mpi_writer *writer,
                                       uint64_t *n_bytes);

/**
 * Frees a writer without finishing, together with all ranks; what was written stays in the partial file. NULL is allowed.
 */
void pumice_mpi_writer_free(struct pumice_mpi_writer *writer);

/**
 * Opens a file, together with all ranks. `options` may be NULL.
 */
pumice_status pumice_mpi_reader_open(const struct pumice_mpi_comm *comm,
                                     const char *path,
                                     const pumice_decode_options *options,
                                     struct pumice_mpi_reader **reader);

/**
 * Closes a file, together with all ranks.
 */
void pumice_mpi_reader_free(struct pumice_mpi_reader *reader);

/**
 * Element type of the array, a pumice_dtype; 0 on failure.
 */
int32_t pumice_mpi_reader_dtype(const struct pumice_mpi_reader *reader);

/**
 * Number of axes; 0 on failure.
 */
size_t pumice_mpi_reader_rank(const struct pumice_mpi_reader *reader);

/**
 * Extents, as many as pumice_mpi_reader_rank() says, which live as long as the reader; NULL on failure.
 */
const size_t *pumice_mpi_reader_shape(const struct pumice_mpi_reader *reader);

/**
 * As pumice_mpi_agree(), for the ranks that have a file open.
 */
pumice_status pumice_mpi_reader_agree(const struct pumice_mpi_reader *reader, int32_t status);

/**
 * Reads boxes, together with all ranks, each of which gives those that it wants, as for pumice_mpi_write(); also such
 * that others read too, or none. `dtype` is the type that the values must have.
 */
pumice_status pumice_mpi_reader_read_all(const struct pumice_mpi_reader *reader,
                                         int32_t dtype,
                                         size_t n_boxes,
                                         const size_t *starts,
                                         const size_t *counts,
                                         void *const *values);

/**
 * Reads one box, without the other ranks.
 */
pumice_status pumice_mpi_reader_read(const struct pumice_mpi_reader *reader,
                                     int32_t dtype,
                                     const size_t *start,
                                     const size_t *count,
                                     void *values);

/**
 * Collects the `n_values` values of each rank, which may differ, on rank `root`, in the order of ranks. There, `out` has
 * room for all of them, `n_out`; elsewhere both may be 0. `config` has an absolute or a relative bound, a point-wise relative
 * one, or none (lossless); a relative one is for the range of all values. `wire` is a pumice_mpi_wire. `transfer` may be
 * NULL. The values of `root` itself stay exact.
 */
pumice_status pumice_mpi_gather(const struct pumice_mpi_comm *comm,
                                int32_t root,
                                const pumice_config *config,
                                int32_t wire,
                                int32_t dtype,
                                size_t n_values,
                                const void *values,
                                size_t n_out,
                                void *out,
                                struct pumice_mpi_transfer *transfer);

/**
 * As pumice_mpi_gather(), but all ranks get all values: the same bits, also those whose values they are.
 */
pumice_status pumice_mpi_all_gather(const struct pumice_mpi_comm *comm,
                                    const pumice_config *config,
                                    int32_t wire,
                                    int32_t dtype,
                                    size_t n_values,
                                    const void *values,
                                    size_t n_out,
                                    void *out,
                                    struct pumice_mpi_transfer *transfer);

/**
 * Gives all ranks the values of rank `root`, in place: all ranks get the same bits, and so does `root`, whose values are
 * replaced by what the others get. For the other arguments see pumice_mpi_gather().
 */
pumice_status pumice_mpi_broadcast(const struct pumice_mpi_comm *comm,
                                   int32_t root,
                                   const pumice_config *config,
                                   int32_t wire,
                                   int32_t dtype,
                                   size_t n_values,
                                   void *values,
                                   struct pumice_mpi_transfer *transfer);

/**
 * Deals out the `n_values` values of rank `root`, in the order of ranks: each gets `n_out`, which may differ. Elsewhere,
 * `values` may be NULL and `n_values` 0. What `root` itself gets stays exact. For the other arguments see
 * pumice_mpi_gather().
 */
pumice_status pumice_mpi_scatter(const struct pumice_mpi_comm *comm,
                                 int32_t root,
                                 const pumice_config *config,
                                 int32_t wire,
                                 int32_t dtype,
                                 size_t n_values,
                                 const void *values,
                                 size_t n_out,
                                 void *out,
                                 struct pumice_mpi_transfer *transfer);

/**
 * Each rank sends values to each. `values` are those for rank 0, then those for rank 1 and so on, as many as `counts` say,
 * which has a number for each rank; `out` gets those of rank 0, then those of rank 1 and so on, as many as `out_counts` say.
 * What a rank sends to itself stays exact. For the other arguments see pumice_mpi_gather().
 */
pumice_status pumice_mpi_all_to_all(const struct pumice_mpi_comm *comm,
                                    const pumice_config *config,
                                    int32_t wire,
                                    int32_t dtype,
                                    const void *values,
                                    const size_t *counts,
                                    void *out,
                                    const size_t *out_counts,
                                    struct pumice_mpi_transfer *transfer);

/**
 * Sends values to rank `to`, which calls pumice_mpi_receive() with the same tag, from 0 to 32767. Only these two ranks take
 * part, and two that send to each other must not both send first. A NULL or unknown argument is an error of this rank, of
 * which the other is not told.
 */
pumice_status pumice_mpi_send(const struct pumice_mpi_comm *comm,
                              int32_t to,
                              int32_t tag,
                              const pumice_config *config,
                              int32_t wire,
                              int32_t dtype,
                              size_t n_values,
                              const void *values,
                              struct pumice_mpi_transfer *transfer);

/**
 * Receives what rank `from` sends with this tag: as many values, of the same type. A message of another number or type is an
 * error, and is gone then. `transfer` may be NULL.
 */
pumice_status pumice_mpi_receive(const struct pumice_mpi_comm *comm,
                                 int32_t from,
                                 int32_t tag,
                                 int32_t dtype,
                                 size_t n_out,
                                 void *out,
                                 struct pumice_mpi_transfer *transfer);

/**
 * Adds vectors of `n_values` values and gives all ranks the sum, bit by bit the same. This rank has `n_vectors`, which
 * may be 0, with a pointer each in `vectors`. `bound` (PUMICE_BOUND_ABS or PUMICE_BOUND_REL) with the number `e` is that
 * of each vector; or, if `is_total` is not 0, that of the sum. `algorithm` is a pumice_mpi_sum_algorithm. `summary` may
 * be NULL.
 */
pumice_status pumice_mpi_all_reduce(const struct pumice_mpi_comm *comm,
                                    int32_t bound,
                                    double e,
                                    int32_t is_total,
                                    int32_t algorithm,
                                    int32_t dtype,
                                    size_t n_values,
                                    size_t n_vectors,
                                    const void *const *vectors,
                                    void *sum,
                                    struct pumice_mpi_sum *summary);

/**
 * As pumice_mpi_all_reduce(), but this rank gets only the `n_out` values of the sum from `first` on. Ranks may ask for any
 * part; the least is sent if their parts follow one another and make up the sum.
 */
pumice_status pumice_mpi_reduce_scatter(const struct pumice_mpi_comm *comm,
                                        int32_t bound,
                                        double e,
                                        int32_t is_total,
                                        int32_t algorithm,
                                        int32_t dtype,
                                        size_t n_values,
                                        size_t n_vectors,
                                        const void *const *vectors,
                                        size_t first,
                                        size_t n_out,
                                        void *sum,
                                        struct pumice_mpi_sum *summary);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PUMICE_MPI_H */
