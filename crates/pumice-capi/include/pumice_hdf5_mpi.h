/* Writes a dataset of HDF5 from many MPI ranks: each compresses its chunks, one rank writes them by H5Dwrite_chunk(). The file is
 * an ordinary one, with the bytes that the filter stores, and the same for every number of ranks. The HDF5 library need not be
 * parallel. C99; link libpumice, libhdf5 (1.10.3 or later) and MPI. docs/parallel-hdf5.md is the guide. */
#ifndef PUMICE_HDF5_MPI_H
#define PUMICE_HDF5_MPI_H

#include <hdf5.h>
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pumice.h"

/* Room for the text of an error. */
#define PUMICE_HDF5_ERROR_BYTES 512

/* What the other ranks must know of the dataset, which only `root` has open. */
typedef struct {
    uint64_t rank, value_bytes, shape[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
    uint64_t n_cd_values;
    /* The filter's part for the dataset: two numbers, two for each axis and two for the fill value. */
    unsigned int cd_values[PUMICE_HDF5_MAX_CD_VALUES + 2 * H5S_MAX_RANK];
} pumice_hdf5_layout_;

/* A compressed chunk: its number in C order among those of the dataset, the rank that has it, and its size. */
typedef struct {
    uint64_t index, owner, n_bytes;
} pumice_hdf5_piece_;

/* The chunks of a rank, or of all; on `root` also room for one that is received. */
typedef struct {
    int n;
    pumice_hdf5_piece_ *pieces;
    pumice_buffer **buffers;
    void *room;
} pumice_hdf5_chunks_;

/* Whether all ranks have the file of a dataset open together. H5Fget_access_plist() would say so only if all of them asked. */
static inline int pumice_hdf5_is_shared_(hid_t dataset)
{
    int is_shared = 0;
#ifdef H5_HAVE_PARALLEL
    H5E_BEGIN_TRY {
        const hid_t file = H5Iget_file_id(dataset);
        hbool_t flag;
        is_shared = file >= 0 && H5Fget_mpi_atomicity(file, &flag) >= 0;
        if (file >= 0)
            H5Fclose(file);
    } H5E_END_TRY
#else
    (void)dataset;
#endif
    return is_shared;
}

/* Reads the layout of a dataset. Without an error the text stays empty. */
static inline void pumice_hdf5_describe_(hid_t dataset, hid_t type, pumice_hdf5_layout_ *layout, char *error)
{
    hid_t space = H5Dget_space(dataset), dcpl = H5Dget_create_plist(dataset), stored = H5Dget_type(dataset);
    const int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    hsize_t shape[H5S_MAX_RANK], chunk[H5S_MAX_RANK];
    unsigned int flags, config;
    size_t n = sizeof layout->cd_values / sizeof *layout->cd_values;
    int own = -1, n_filters = dcpl < 0 ? 0 : H5Pget_nfilters(dcpl);
    for (int i = 0; i < n_filters; i++) {
        size_t none = 0;
        if (H5Pget_filter2(dcpl, (unsigned int)i, &flags, &none, NULL, 0, NULL, &config) == PUMICE_HDF5_FILTER_ID)
            own = i;
    }
    if (rank < 1 || H5Pget_layout(dcpl) != H5D_CHUNKED || own < 0 ||
        H5Pget_filter_by_id2(dcpl, PUMICE_HDF5_FILTER_ID, &flags, &n, layout->cd_values, 0, NULL, &config) < 0)
        snprintf(error, PUMICE_HDF5_ERROR_BYTES, "this is no open dataset that was created with the Pumice filter");
    else if (pumice_hdf5_is_shared_(dataset))
        snprintf(error, PUMICE_HDF5_ERROR_BYTES,
                 "HDF5 cannot write chunks in a file of H5Pset_fapl_mpio(): open it on one rank, without that");
    else if (own != n_filters - 1)
        snprintf(error, PUMICE_HDF5_ERROR_BYTES, "there is a filter after Pumice: leave it out, or write by H5Dwrite()");
    else if (H5Tequal(type, stored) <= 0)
        snprintf(error, PUMICE_HDF5_ERROR_BYTES,
                 "the values are not of the dataset's type and byte order: convert them, such as by H5Tconvert()");
    else if (n > sizeof layout->cd_values / sizeof *layout->cd_values ||
             H5Sget_simple_extent_dims(space, shape, NULL) != rank || H5Pget_chunk(dcpl, rank, chunk) != rank)
        snprintf(error, PUMICE_HDF5_ERROR_BYTES, "the layout of the dataset cannot be read");
    else {
        layout->rank = (uint64_t)rank;
        layout->value_bytes = H5Tget_size(stored);
        layout->n_cd_values = n;
        for (int i = 0; i < rank; i++) {
            layout->shape[i] = shape[i];
            layout->chunk[i] = chunk[i];
        }
    }
    if (stored >= 0)
        H5Tclose(stored);
    if (dcpl >= 0)
        H5Pclose(dcpl);
    if (space >= 0)
        H5Sclose(space);
}

/* Whether a box consists of whole chunks, but for those at the edge of the dataset. */
static inline int pumice_hdf5_is_aligned_(const pumice_hdf5_layout_ *layout, const hsize_t *start, const hsize_t *count)
{
    for (uint64_t i = 0; i < layout->rank; i++) {
        const uint64_t shape = layout->shape[i], chunk = layout->chunk[i];
        if (start[i] > shape || count[i] > shape - start[i] || start[i] % chunk != 0 ||
            (start[i] + count[i] != shape && count[i] % chunk != 0))
            return 0;
    }
    return 1;
}

/* Compresses chunk `at` of a box, counted in C order: sets its number, and the place of `buffer`. */
static inline int pumice_hdf5_compress_nth_(const pumice_hdf5_layout_ *layout, const char *values, const hsize_t *start,
                                            const hsize_t *count, uint64_t at, size_t threads, uint64_t *index,
                                            pumice_buffer **buffer)
{
    size_t offset[H5S_MAX_RANK], part[H5S_MAX_RANK], n_bytes = layout->value_bytes;
    const int rank = (int)layout->rank;
    for (int i = rank - 1; i >= 0; i--) {
        const uint64_t n_chunks = (count[i] + layout->chunk[i] - 1) / layout->chunk[i];
        offset[i] = (size_t)(at % n_chunks * layout->chunk[i]);
        part[i] = (size_t)(count[i] - offset[i] < layout->chunk[i] ? count[i] - offset[i] : layout->chunk[i]);
        at /= n_chunks;
        n_bytes *= part[i];
    }
    *index = 0;
    for (int i = 0; i < rank; i++)
        *index = *index * ((layout->shape[i] + layout->chunk[i] - 1) / layout->chunk[i]) +
                 (start[i] + offset[i]) / layout->chunk[i];
    char *copy = (char *)malloc(n_bytes);
    if (!copy)
        return 0;
    /* Row by row along the fastest axis. */
    const size_t row = part[rank - 1] * layout->value_bytes;
    for (size_t done = 0; done < n_bytes; done += row) {
        size_t left = done / row, from = 0, step = count[rank - 1];
        from = offset[rank - 1];
        for (int i = rank - 2; i >= 0; i--) {
            from += (offset[i] + left % part[i]) * step;
            left /= part[i];
            step *= count[i];
        }
        memcpy(copy + done, values + from * layout->value_bytes, row);
    }
    const pumice_status status = pumice_hdf5_compress_chunk(layout->cd_values, layout->n_cd_values, copy, layout->rank,
                                                            part, n_bytes, threads, buffer);
    free(copy);
    return status == PUMICE_STATUS_OK;
}

static inline int pumice_hdf5_by_index_(const void *a, const void *b)
{
    const uint64_t left = ((const pumice_hdf5_piece_ *)a)->index, right = ((const pumice_hdf5_piece_ *)b)->index;
    return (left > right) - (left < right);
}

/* All ranks get the error of the lowest rank that has one; whether there is one. */
static inline int pumice_hdf5_agree_(char *error, MPI_Comm comm)
{
    int me, n_ranks, first;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n_ranks);
    const int mine = *error ? me : n_ranks;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm);
    if (first < n_ranks)
        MPI_Bcast(error, PUMICE_HDF5_ERROR_BYTES, MPI_CHAR, first, comm);
    return first < n_ranks;
}

/* Compresses the chunks of a box, which has whole ones. */
static inline void pumice_hdf5_compress_box_(const pumice_hdf5_layout_ *layout, const void *values, const hsize_t *start,
                                             const hsize_t *count, size_t threads, int me, pumice_hdf5_chunks_ *own,
                                             char *error)
{
    uint64_t n = 1;
    for (uint64_t i = 0; i < layout->rank; i++)
        n *= (count[i] + layout->chunk[i] - 1) / layout->chunk[i];
    if (n > 0 && !pumice_hdf5_is_aligned_(layout, start, count)) {
        snprintf(error, PUMICE_HDF5_ERROR_BYTES,
                 "rank %d: the box does not start and end at the borders of chunks or the edge of the dataset", me);
        return;
    }
    if (n > INT_MAX) {
        snprintf(error, PUMICE_HDF5_ERROR_BYTES, "rank %d: too many chunks in one call: write several boxes", me);
        return;
    }
    own->pieces = (pumice_hdf5_piece_ *)calloc((size_t)n + 1, sizeof *own->pieces);
    own->buffers = (pumice_buffer **)calloc((size_t)n + 1, sizeof *own->buffers);
    if (!own->pieces || !own->buffers) {
        snprintf(error, PUMICE_HDF5_ERROR_BYTES, "rank %d: no memory for a list of the chunks", me);
        return;
    }
    for (int i = 0; i < (int)n; i++) {
        pumice_hdf5_piece_ *piece = &own->pieces[i];
        if (!pumice_hdf5_compress_nth_(layout, (const char *)values, start, count, (uint64_t)i, threads, &piece->index,
                                       &own->buffers[i])) {
            snprintf(error, PUMICE_HDF5_ERROR_BYTES, "rank %d cannot compress a chunk: %s", me, pumice_last_error());
            return;
        }
        own->n = i + 1;
        piece->owner = (uint64_t)me;
        piece->n_bytes = pumice_buffer_size(own->buffers[i]);
        if (piece->n_bytes > INT_MAX) {
            snprintf(error, PUMICE_HDF5_ERROR_BYTES, "rank %d: a chunk of 2 GiB and more: use smaller chunks", me);
            return;
        }
    }
}

/* Gathers the lists of all ranks on `root`, in the order of the dataset. Whether that failed, on all ranks. */
static inline int pumice_hdf5_gather_(const pumice_hdf5_chunks_ *own, pumice_hdf5_chunks_ *all, int root, MPI_Comm comm,
                                      char *error)
{
    int me, n_ranks;
    long long mine = own->n, sum = 0;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &n_ranks);
    MPI_Reduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, root, comm);
    int *counts = NULL, *places = NULL;
    if (me == root) {
        counts = (int *)calloc((size_t)n_ranks, sizeof *counts);
        places = (int *)calloc((size_t)n_ranks, sizeof *places);
        if (sum < INT_MAX)
            all->pieces = (pumice_hdf5_piece_ *)calloc((size_t)sum + 1, sizeof *all->pieces);
        if (!counts || !places || !all->pieces)
            snprintf(error, PUMICE_HDF5_ERROR_BYTES, "no memory for a list of %lld chunks: write several boxes", sum);
    }
    const int failed = pumice_hdf5_agree_(error, comm);
    if (!failed) {
        MPI_Datatype piece;
        MPI_Type_contiguous(3, MPI_UINT64_T, &piece);
        MPI_Type_commit(&piece);
        MPI_Gather(&own->n, 1, MPI_INT, counts, 1, MPI_INT, root, comm);
        for (int i = 0; me == root && i < n_ranks; i++) {
            places[i] = all->n;
            all->n += counts[i];
        }
        MPI_Gatherv(own->pieces, own->n, piece, all->pieces, counts, places, piece, root, comm);
        MPI_Type_free(&piece);
        if (me == root)
            qsort(all->pieces, (size_t)all->n, sizeof *all->pieces, pumice_hdf5_by_index_);
    }
    free(counts);
    free(places);
    return failed;
}

/* Checks the list of all chunks, and allocates room for the largest one. */
static inline void pumice_hdf5_check_list_(pumice_hdf5_chunks_ *all, char *error)
{
    size_t largest = 1;
    for (int i = 0; i < all->n; i++) {
        const pumice_hdf5_piece_ *piece = &all->pieces[i];
        if (piece->n_bytes > largest)
            largest = (size_t)piece->n_bytes;
        if (i > 0 && piece->index == piece[-1].index)
            snprintf(error, PUMICE_HDF5_ERROR_BYTES, "ranks %d and %d both give one chunk", (int)piece[-1].owner,
                     (int)piece->owner);
    }
    all->room = malloc(largest);
    if (!all->room)
        snprintf(error, PUMICE_HDF5_ERROR_BYTES, "no memory for a chunk of %zu bytes", largest);
}

/* Receives all chunks in their order, but its own, and writes them. Goes on receiving after an error. */
static inline void pumice_hdf5_write_all_(hid_t dataset, const pumice_hdf5_layout_ *layout, const pumice_hdf5_chunks_ *own,
                                          const pumice_hdf5_chunks_ *all, int root, MPI_Comm comm, char *error)
{
    for (int i = 0, n_own = 0; i < all->n; i++) {
        const pumice_hdf5_piece_ *piece = &all->pieces[i];
        hsize_t offset[H5S_MAX_RANK];
        uint64_t at = piece->index;
        for (int axis = (int)layout->rank - 1; axis >= 0; axis--) {
            const uint64_t n_chunks = (layout->shape[axis] + layout->chunk[axis] - 1) / layout->chunk[axis];
            offset[axis] = at % n_chunks * layout->chunk[axis];
            at /= n_chunks;
        }
        const void *bytes = all->room;
        if (piece->owner == (uint64_t)root)
            bytes = pumice_buffer_data(own->buffers[n_own++]);
        else
            MPI_Recv(all->room, (int)piece->n_bytes, MPI_BYTE, (int)piece->owner, 0, comm, MPI_STATUS_IGNORE);
        if (!*error && H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, offset, (size_t)piece->n_bytes, bytes) < 0)
            snprintf(error, PUMICE_HDF5_ERROR_BYTES, "HDF5 cannot write a chunk of %llu bytes: see its error stack",
                     (unsigned long long)piece->n_bytes);
    }
}

static inline void pumice_hdf5_free_(pumice_hdf5_chunks_ *chunks)
{
    for (int i = 0; chunks->buffers && i < chunks->n; i++)
        pumice_buffer_free(chunks->buffers[i]);
    free(chunks->buffers);
    free(chunks->pieces);
    free(chunks->room);
}

/* Writes a part of `dataset`, compressed by all ranks of `comm`, which call this together. Only `root` has the dataset open, in a
 * file without H5Pset_fapl_mpio(), and created with the Pumice filter as the last one; the others may pass -1. `type` is the type
 * of the values on `root`: that of the dataset. Each rank gives the box `start`, `count` of the dataset that it holds, in C order:
 * whole chunks, but for those at the edge of the dataset; ranks without values give a count with a 0. No chunk may come from two
 * ranks; one that none gives keeps what it has. `threads` for each chunk, 0 for one per core. 0 on success; else all ranks return
 * -1 with the same text in `error`, and the dataset is unchanged, unless it is HDF5 that cannot write. */
static inline int pumice_hdf5_write_chunks(hid_t dataset, hid_t type, const void *values, const hsize_t *start,
                                           const hsize_t *count, size_t threads, int root, MPI_Comm comm,
                                           char error[PUMICE_HDF5_ERROR_BYTES])
{
    int me;
    pumice_hdf5_layout_ layout;
    pumice_hdf5_chunks_ own = {0, NULL, NULL, NULL}, all = {0, NULL, NULL, NULL};
    MPI_Comm_rank(comm, &me);
    memset(&layout, 0, sizeof layout);
    memset(error, 0, PUMICE_HDF5_ERROR_BYTES);
    if (me == root)
        pumice_hdf5_describe_(dataset, type, &layout, error);
    if (pumice_hdf5_agree_(error, comm))
        return -1;
    MPI_Bcast(&layout, (int)sizeof layout, MPI_BYTE, root, comm);

    pumice_hdf5_compress_box_(&layout, values, start, count, threads, me, &own, error);
    int failed = pumice_hdf5_agree_(error, comm) || pumice_hdf5_gather_(&own, &all, root, comm, error);
    if (!failed && me == root)
        pumice_hdf5_check_list_(&all, error);
    failed = failed || pumice_hdf5_agree_(error, comm);
    if (!failed && me == root)
        pumice_hdf5_write_all_(dataset, &layout, &own, &all, root, comm, error);
    for (int i = 0; !failed && me != root && i < own.n; i++)
        MPI_Send(pumice_buffer_data(own.buffers[i]), (int)own.pieces[i].n_bytes, MPI_BYTE, root, 0, comm);
    failed = failed || pumice_hdf5_agree_(error, comm);
    pumice_hdf5_free_(&own);
    pumice_hdf5_free_(&all);
    return failed ? -1 : 0;
}

#endif
