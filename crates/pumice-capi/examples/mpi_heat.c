/* Ranks share out a field, write it to one file together, read it back with another decomposition, gather it on rank 0
 * and add up a vector, with each bound checked. Run by: mpirun -n 4 ./mpi_heat */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pumice_mpi.h"

#define NY 60
#define NX 50

static float value(size_t y, size_t x)
{
    return (float)(20.0 + 5.0 * sin(0.1 * (double)x) * cos(0.07 * (double)y));
}

static void check(pumice_status status)
{
    if (status != PUMICE_STATUS_OK) {
        fprintf(stderr, "error %d: %s\n", (int)status, pumice_last_error());
        MPI_Abort(MPI_COMM_WORLD, status);
    }
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "error: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, n_ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    pumice_mpi_comm *comm = pumice_mpi_comm_new(MPI_COMM_WORLD);
    expect(comm != NULL, "no communicator");

    /* Each rank has some rows of the field; with more ranks than rows some have none. */
    const size_t shape[] = {NY, NX};
    size_t first = (size_t)rank * NY / (size_t)n_ranks, end = ((size_t)rank + 1) * NY / (size_t)n_ranks;
    size_t start[] = {first, 0}, count[] = {end - first, NX};
    static float mine[NY * NX], wanted[NY * NX], all[NY * NX];
    for (size_t y = first; y < end; y++)
        for (size_t x = 0; x < NX; x++)
            mine[(y - first) * NX + x] = value(y, x);

    const double bound = 1e-3;
    pumice_config *config = pumice_config_new(PUMICE_BOUND_ABS, bound);
    const void *boxes[] = {mine};
    uint64_t n_bytes;
    check(pumice_mpi_write(comm, "heat.pum", config, PUMICE_MPI_WIRE_COMPRESSED, PUMICE_DTYPE_F32, 2, shape, 1, start, count,
                           boxes, &n_bytes));
    if (rank == 0)
        printf("%d ranks: %zu bytes of values became %llu\n", n_ranks, sizeof all, (unsigned long long)n_bytes);

    /* Time steps, of which the second is added by a later run; and a file that is written while the program goes on. */
    const size_t step_start[] = {0, first, 0}, step_count[] = {1, end - first, NX};
    pumice_mpi_writer *writer;
    check(pumice_mpi_writer_create(comm, "steps.pum", config, PUMICE_DTYPE_F32, 2, shape, &writer));
    check(pumice_mpi_writer_write(writer, 1, 3, 1, step_start, step_count, boxes));
    check(pumice_mpi_writer_finish(writer, NULL));
    check(pumice_mpi_writer_append(comm, "steps.pum", PUMICE_DTYPE_F32, 0, &writer));
    check(pumice_mpi_writer_write(writer, 1, 3, 1, step_start, step_count, boxes));
    check(pumice_mpi_writer_finish(writer, NULL));
    pumice_mpi_writing *writing;
    check(pumice_mpi_iwrite(comm, "later.pum", config, PUMICE_DTYPE_F32, 2, shape, 1, start, count, boxes, &writing));
    check(pumice_mpi_writing_wait(writing, NULL));

    /* Another program may have other ranks: here, each wants some columns. */
    pumice_mpi_reader *reader;
    check(pumice_mpi_reader_open(comm, "heat.pum", NULL, &reader));
    const size_t *extents = pumice_mpi_reader_shape(reader);
    expect(pumice_mpi_reader_rank(reader) == 2 && extents[0] == NY && extents[1] == NX, "another shape");
    size_t left = (size_t)rank * NX / (size_t)n_ranks, right = ((size_t)rank + 1) * NX / (size_t)n_ranks;
    size_t from[] = {0, left}, columns[] = {NY, right - left};
    void *targets[] = {wanted};
    check(pumice_mpi_reader_read_all(reader, PUMICE_DTYPE_F32, 1, from, columns, targets));
    for (size_t y = 0; y < NY; y++)
        for (size_t x = left; x < right; x++) {
            float restored = wanted[y * (right - left) + x - left];
            expect(fabs((double)restored - value(y, x)) <= bound, "the bound is broken");
        }
    /* One row, for one rank alone. */
    if (rank == n_ranks - 1) {
        size_t row[] = {7, 0}, one[] = {1, NX};
        check(pumice_mpi_reader_read(reader, PUMICE_DTYPE_F32, row, one, wanted));
        expect(fabs((double)wanted[3] - value(7, 3)) <= bound, "the bound is broken in a row");
    }
    pumice_mpi_reader_free(reader);

    /* Compressed on the way. */
    pumice_mpi_transfer transfer;
    check(pumice_mpi_gather(comm, 0, config, PUMICE_MPI_WIRE_COMPRESSED, PUMICE_DTYPE_F32, (end - first) * NX, mine,
                            rank == 0 ? NY * NX : 0, all, &transfer));
    for (size_t i = 0; rank == 0 && i < NY * NX; i++)
        expect(fabs((double)all[i] - value(i / NX, i % NX)) <= bound, "the bound is broken in what was gathered");

    /* The sum over all ranks, with an error of at most `bound` in all. */
    static double vector[1000], sum[1000];
    const void *vectors[] = {vector};
    for (int i = 0; i < 1000; i++)
        vector[i] = sin(0.01 * i) * (rank + 1);
    pumice_mpi_sum summary;
    check(pumice_mpi_all_reduce(comm, PUMICE_BOUND_ABS, bound, 1, PUMICE_MPI_SUM_ALGORITHM_AUTO, PUMICE_DTYPE_F64, 1000, 1,
                                vectors, sum, &summary));
    expect(summary.n_vectors == (uint64_t)n_ranks && summary.abs_bound <= bound, "another bound");
    for (int i = 0; i < 1000; i++)
        expect(fabs(sum[i] - sin(0.01 * i) * n_ranks * (n_ranks + 1) / 2) <= bound + 1e-12, "the sum is wrong");

    /* A state that all ranks keep: the same bits everywhere, the sender included. */
    for (int i = 0; i < 1000; i++)
        vector[i] = rank == 0 ? sum[i] : 0.0;
    check(pumice_mpi_broadcast(comm, 0, config, PUMICE_MPI_WIRE_COMPRESSED, PUMICE_DTYPE_F64, 1000, vector, &transfer));
    for (int i = 0; i < 1000; i++)
        expect(fabs(vector[i] - sum[i]) <= bound, "the bound is broken in what was broadcast");

    /* Around a ring of ranks. */
    if (n_ranks > 1) {
        int next = (rank + 1) % n_ranks, previous = (rank + n_ranks - 1) % n_ranks;
        for (int turn = 0; turn < 2; turn++)
            if ((rank + turn) % 2 == 0)
                check(pumice_mpi_send(comm, next, 3, config, PUMICE_MPI_WIRE_AUTO, PUMICE_DTYPE_F64, 1000, vector, NULL));
            else
                check(pumice_mpi_receive(comm, previous, 3, PUMICE_DTYPE_F64, 1000, sum, NULL));
    }

    /* What only one rank does wrong, all are told; none hangs. */
    start[0] += rank == n_ranks - 1;
    pumice_status status = pumice_mpi_write(comm, "heat.pum", config, PUMICE_MPI_WIRE_COMPRESSED,
                                            rank == 0 ? 7 : PUMICE_DTYPE_F32, 2, shape, 1, start, count, boxes, NULL);
    expect(status == PUMICE_STATUS_INVALID_ARGUMENT, "a wrong argument was taken");
    if (rank == 0)
        printf("refused: %s\n", pumice_last_error());

    pumice_config_free(config);
    pumice_mpi_comm_free(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        pumice_reader *steps;
        check(pumice_reader_open_file("steps.pum", NULL, &steps));
        expect(pumice_reader_shape(steps)[0] == 2, "not two time steps");
        pumice_reader_free(steps);
        remove("heat.pum");
        remove("later.pum");
        remove("steps.pum");
    }
    MPI_Finalize();
    return 0;
}
