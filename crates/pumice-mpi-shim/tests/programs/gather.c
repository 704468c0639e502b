/* Gathers in many forms; the root checks all values. Usage: gather BOUND N: N values of each rank, more or less. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, n_ranks;
static double bound;

static double value(int of_rank, int i) { return of_rank + sin(i * 1e-4); }

static void check(const double *values, int n, int of_rank, const char *what) {
    for (int i = 0; i < n; i++)
        if (!(fabs(values[i] - value(of_rank, i)) <= bound)) {
            fprintf(stderr, "%s: value %d of rank %d is %g, not %g\n", what, i, of_rank, values[i], value(of_rank, i));
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    bound = atof(argv[1]);
    int n = atoi(argv[2]), gap = 5, total = n_ranks * (n + n_ranks + gap);
    double *mine = malloc((n + n_ranks) * sizeof(double)), *all = malloc(total * sizeof(double));
    float *single = malloc(n * sizeof(float)), *singles = malloc(n_ranks * n * sizeof(float));
    for (int i = 0; i < n + n_ranks; i++) mine[i] = value(rank, i);

    for (int root = 0; root < n_ranks; root++) {
        MPI_Gather(mine, n, MPI_DOUBLE, all, n, MPI_DOUBLE, root, MPI_COMM_WORLD);
        for (int r = 0; rank == root && r < n_ranks; r++) check(all + r * n, n, r, "MPI_Gather");
    }
    /* In place, and another form of the same type on the root. */
    MPI_Datatype row;
    MPI_Type_contiguous(n, MPI_DOUBLE, &row);
    MPI_Type_commit(&row);
    for (int i = 0; rank == 0 && i < n; i++) all[i] = mine[i];
    MPI_Gather(rank == 0 ? MPI_IN_PLACE : mine, n, MPI_DOUBLE, all, 1, row, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < n_ranks; r++) check(all + r * n, n, r, "MPI_Gather in place");
    MPI_Type_free(&row);

    /* Another number for each rank, with gaps, the last rank first, none of rank 1. */
    int *counts = malloc(n_ranks * sizeof(int)), *starts = malloc(n_ranks * sizeof(int));
    for (int r = 0; r < n_ranks; r++) {
        counts[r] = r == 1 ? 0 : n + r;
        starts[r] = (n_ranks - 1 - r) * (n + n_ranks + gap);
    }
    for (int i = 0; i < total; i++) all[i] = -7;
    MPI_Gatherv(mine, counts[rank], MPI_DOUBLE, all, counts, starts, MPI_DOUBLE, n_ranks - 1, MPI_COMM_WORLD);
    for (int r = 0; rank == n_ranks - 1 && r < n_ranks; r++) {
        check(all + starts[r], counts[r], r, "MPI_Gatherv");
        for (int i = counts[r]; i < n + n_ranks + gap; i++)
            if (all[starts[r] + i] != -7) MPI_Abort(MPI_COMM_WORLD, 2);
    }

    /* What is not compressed must be exact: integers, few values, types with gaps. */
    int *integer = (int *)single, *integers = (int *)singles;
    for (int i = 0; i < n; i++) integer[i] = rank * n + i;
    MPI_Gather(integer, n, MPI_INT, integers, n, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < n * n_ranks; i++)
        if (integers[i] != i) MPI_Abort(MPI_COMM_WORLD, 3);
    double exact = bound;
    bound = 0;
    MPI_Gather(mine, 10, MPI_DOUBLE, all, 10, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < n_ranks; r++) check(all + r * 10, 10, r, "ten values");
    MPI_Datatype sparse;
    MPI_Type_vector(n / 2, 1, 2, MPI_DOUBLE, &sparse);
    MPI_Type_commit(&sparse);
    MPI_Gather(mine, 1, sparse, all, n / 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < n_ranks; r++)
        if (all[r * (n / 2) + 3] != value(r, 6)) MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Type_free(&sparse);
    bound = exact;

    /* Single precision, among part of the ranks. */
    MPI_Comm half;
    int half_rank, half_ranks;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_ranks);
    for (int i = 0; i < n; i++) single[i] = (float)value(half_rank, i);
    MPI_Gather(single, n, MPI_FLOAT, singles, n, MPI_FLOAT, 0, half);
    for (int r = 0; half_rank == 0 && r < half_ranks; r++)
        for (int i = 0; i < n; i++)
            if (!(fabs(singles[r * n + i] - (float)value(r, i)) <= bound)) MPI_Abort(MPI_COMM_WORLD, 5);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
