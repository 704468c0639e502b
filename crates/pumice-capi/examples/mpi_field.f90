!> Ranks share out a field, write it to one file together, read it back, gather it and add up a vector, with each bound
!> checked. Run by: mpirun -n 4 ./mpi_field
program mpi_field
  use, intrinsic :: iso_c_binding
  use mpi
  use pumice
  use pumice_mpi
  implicit none

  integer, parameter :: nx = 40, ny = 36, nz = 8
  real(c_double), parameter :: bound = 1d-3
  real(c_float), allocatable :: mine(:, :, :), planes(:, :, :), all(:, :, :)
  real(c_double) :: vector(1000), total(1000)
  type(c_ptr) :: comm, config, reader, writing, writer
  type(pumice_mpi_transfer) :: transfer
  type(pumice_mpi_sum) :: summary
  integer(c_int64_t) :: n_bytes
  integer(c_int32_t) :: status
  integer :: rank, n_ranks, first, last, i, ierr

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, n_ranks, ierr)
  comm = pumice_mpi_comm_new(MPI_COMM_WORLD)
  config = pumice_config_new(pumice_bound_abs, bound)

  ! Each rank has some columns of the second axis.
  first = rank * ny / n_ranks + 1
  last = (rank + 1) * ny / n_ranks
  allocate(mine(nx, last - first + 1, nz))
  call fill(mine, first, 1)
  call check(pumice_mpi_write(comm, 'field.pum', config, [nx, ny, nz], [1, first, 1], mine, n_bytes))
  if (rank == 0) print '(i0, a, i0, a, i0)', n_ranks, ' ranks: ', 4 * nx * ny * nz, ' bytes of values became ', n_bytes

  ! Each reads some planes.
  call check(pumice_mpi_reader_open(comm, 'field.pum', c_null_ptr, reader))
  if (any(pumice_mpi_reader_shape(reader) /= [nx, ny, nz])) call fail('another shape')
  first = rank * nz / n_ranks + 1
  last = (rank + 1) * nz / n_ranks
  allocate(planes(nx, ny, last - first + 1))
  call check(pumice_mpi_reader_read_all(reader, [1, 1, first], planes))
  call compare(planes, 1, first)
  ! One rank alone.
  if (rank == n_ranks - 1) then
    allocate(all(nx, 2, 1))
    call check(pumice_mpi_reader_read(reader, [1, 5, nz], all))
    call compare(all, 5, nz)
    deallocate(all)
  end if
  call pumice_mpi_reader_free(reader)

  ! The same while the program goes on, and as time steps.
  call check(pumice_mpi_iwrite(comm, 'later.pum', config, [nx, ny, nz], [1, rank * ny / n_ranks + 1, 1], mine, writing))
  mine = 0
  call check(pumice_mpi_writing_wait(writing, n_bytes))
  call check(pumice_mpi_writer_create(comm, 'steps.pum', config, pumice_dtype_f32, [nx, ny], writer))
  call check(pumice_mpi_writer_write(writer, nz, [1, 1, first], planes))
  call check(pumice_mpi_writer_finish(writer, n_bytes))
  call check(pumice_mpi_reader_open(comm, 'later.pum', c_null_ptr, reader))
  call check(pumice_mpi_reader_read_all(reader, [1, 1, first], planes))
  call compare(planes, 1, first)
  call pumice_mpi_reader_free(reader)
  call check(pumice_mpi_reader_open(comm, 'steps.pum', c_null_ptr, reader))
  if (any(pumice_mpi_reader_shape(reader) /= [nx, ny, nz])) call fail('other time steps')
  call pumice_mpi_reader_free(reader)

  ! The planes of all ranks, compressed on their way.
  call fill(planes, 1, first)
  allocate(all(nx, ny, merge(nz, 0, rank == 0)))
  call check(pumice_mpi_gather(comm, 0, config, pumice_mpi_wire_compressed, planes, all, transfer))
  if (rank == 0) call compare(all, 1, 1)

  ! The sum over all ranks, with an error of at most `bound` in all.
  vector = [(sin(0.01d0 * i) * (rank + 1), i = 1, size(vector))]
  call check(pumice_mpi_all_reduce(comm, pumice_bound_abs, bound, .true., pumice_mpi_sum_algorithm_auto, vector, total, &
    summary))
  if (summary%n_vectors /= n_ranks .or. summary%abs_bound > bound) call fail('another bound')
  vector = [(sin(0.01d0 * i) * n_ranks * (n_ranks + 1) / 2, i = 1, size(vector))]
  if (any(abs(total - vector) > bound + 1d-12)) call fail('the sum is wrong')

  ! As many values of it on each rank as it needs, and the rest.
  first = rank * size(vector) / n_ranks + 1
  last = (rank + 1) * size(vector) / n_ranks
  call check(pumice_mpi_reduce_scatter(comm, pumice_bound_abs, bound, .true., pumice_mpi_sum_algorithm_ring, &
    vector / (n_ranks * (n_ranks + 1) / 2), first, total(first:last), summary))
  if (any(abs(total(first:last) * ((n_ranks + 1) / 2d0) - vector(first:last)) > bound * n_ranks)) &
    call fail('a part of the sum is wrong')
  call check(pumice_mpi_all_gather(comm, config, pumice_mpi_wire_compressed, vector(first:last), total, transfer))
  if (any(abs(total - vector) > bound)) call fail('the bound is broken in what all gathered')
  if (rank > 0) total = 0
  call check(pumice_mpi_broadcast(comm, 0, config, pumice_mpi_wire_compressed, total, transfer))
  if (any(abs(total - vector) > 2 * bound)) call fail('the bound is broken in what was broadcast')
  total(first:last) = 0
  call check(pumice_mpi_scatter(comm, 0, config, pumice_mpi_wire_plain, vector, total(first:last), transfer))
  if (any(total(first:last) /= vector(first:last))) call fail('other values were dealt out')
  ! One value for each rank, and one from each.
  call check(pumice_mpi_all_to_all(comm, config, pumice_mpi_wire_auto, vector(:n_ranks), [(1, i = 1, n_ranks)], &
    total(:n_ranks), [(1, i = 1, n_ranks)], transfer))
  if (any(abs(total(:n_ranks) - vector(rank + 1)) > bound)) call fail('the bound is broken in what all sent to all')
  if (rank == 0 .and. n_ranks > 1) call check(pumice_mpi_send(comm, 1, 5, config, pumice_mpi_wire_compressed, vector, transfer))
  if (rank == 1) then
    call check(pumice_mpi_receive(comm, 0, 5, total, transfer))
    if (any(abs(total - vector) > bound)) call fail('the bound is broken in what was received')
  end if

  ! What only one rank does wrong, all are told; none hangs.
  status = pumice_mpi_write(comm, 'field.pum', config, [nx, ny, nz], [1, merge(0, 1, rank == n_ranks - 1), 1], mine, n_bytes)
  if (status /= pumice_status_invalid_argument) call fail('a wrong position was taken')
  if (rank == 0) print '(2a)', 'refused: ', pumice_last_error()

  call pumice_config_free(config)
  call pumice_mpi_comm_free(comm)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) then
    call remove('field.pum')
    call remove('later.pum')
    call remove('steps.pum')
  end if
  call MPI_Finalize(ierr)

contains

  pure function value(x, y, z)
    integer, intent(in) :: x, y, z
    real(c_float) :: value
    value = real(280 + 10 * sin(0.1d0 * x) * cos(0.08d0 * y) + 0.5d0 * z, c_float)
  end function

  !> The values of a box of all x, from these y and z on.
  subroutine fill(box, y, z)
    real(c_float), intent(out) :: box(:, :, :)
    integer, intent(in) :: y, z
    integer :: i, j, k
    do k = 1, size(box, 3)
      do j = 1, size(box, 2)
        do i = 1, size(box, 1)
          box(i, j, k) = value(i, y + j - 1, z + k - 1)
        end do
      end do
    end do
  end subroutine

  subroutine compare(box, y, z)
    real(c_float), intent(in) :: box(:, :, :)
    integer, intent(in) :: y, z
    real(c_float) :: original(size(box, 1), size(box, 2), size(box, 3))
    call fill(original, y, z)
    if (any(abs(real(box, c_double) - original) > bound)) call fail('the bound is broken')
  end subroutine

  subroutine remove(path)
    character(*), intent(in) :: path
    integer :: unit
    open(newunit=unit, file=path)
    close(unit, status='delete')
  end subroutine

  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status /= pumice_status_ok) call fail(pumice_last_error())
  end subroutine

  subroutine fail(message)
    character(*), intent(in) :: message
    integer :: ierr
    print '(2a)', 'error: ', message
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine

end program mpi_field
