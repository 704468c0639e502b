/* What calls cost that the shim hands on: each is made through the name that the shim has taken, and straight in the MPI
 * library, by turns. Rank 0 prints the ratio of the medians. Usage: overhead FOLDER */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Gather(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);
typedef int WriteAt(MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Status *);

enum { TURNS = 41 };

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double *mine, *all;
static MPI_File file;

static double gathers(Gather *gather, int n, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++) gather(mine, n, MPI_DOUBLE, all, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / calls;
}

static double writes(WriteAt *write_at, int n, int calls) {
    MPI_Status status;
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++) write_at(file, 0, mine, n, MPI_DOUBLE, &status);
    return (MPI_Wtime() - start) / calls;
}

static void report(const char *name, double (*times)[TURNS]) {
    for (int side = 0; side < 2; side++) qsort(times[side], TURNS, sizeof(double), compare);
    double straight = times[0][TURNS / 2], taken = times[1][TURNS / 2];
    printf("%s: %.2f us straight, %.2f us by the shim, ratio %.3f\n", name, straight * 1e6, taken * 1e6, taken / straight);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, n_ranks, large = 1 << 17;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    mine = calloc(large, sizeof(double));
    all = malloc((size_t)large * n_ranks * sizeof(double));
    for (int i = 0; i < large; i++) mine[i] = i;
    void *library = dlopen("libmpi.so.40", RTLD_NOW);
    Gather *gather = library ? (Gather *)dlsym(library, "PMPI_Gather") : NULL;
    WriteAt *write_at = library ? (WriteAt *)dlsym(library, "PMPI_File_write_at") : NULL;
    if (!gather || !write_at || gather == MPI_Gather) {
        fprintf(stderr, "the functions of the library are not found, or no shim is there\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/overhead.bin", argv[1]);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    static double small[2][TURNS], big[2][TURNS], bytes[2][TURNS];
    for (int turn = 0; turn < TURNS; turn++)
        for (int side = 0; side < 2; side++) {
            small[side][turn] = gathers(side ? MPI_Gather : gather, 8, 2000);
            big[side][turn] = gathers(side ? MPI_Gather : gather, large, 32);
            bytes[side][turn] = rank ? 0 : writes(side ? MPI_File_write_at : write_at, 512, 500);
        }
    if (rank == 0) {
        report("gather of 64 bytes", small);
        report("gather of 1 MiB, which the link carries quicker", big);
        report("write of 4 KiB to a file that no rule names", bytes);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
