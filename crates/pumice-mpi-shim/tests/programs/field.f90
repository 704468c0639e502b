! Writes and reads a field with the Fortran interface of MPI. Usage: field FOLDER BOUND
program field
  use mpi
  implicit none
  integer, parameter :: rows = 40, columns = 30
  integer :: rank, n_ranks, ierror, file, block, from, n, i, j, n_read
  integer :: status(MPI_STATUS_SIZE)
  integer(kind=MPI_OFFSET_KIND) :: start, bytes
  double precision, allocatable :: values(:, :), all(:, :)
  double precision :: bound
  character(len=512) :: folder, text

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, n_ranks, ierror)
  call get_command_argument(1, folder)
  call get_command_argument(2, text)
  read (text, *) bound
  from = rows*rank/n_ranks
  n = rows*(rank + 1)/n_ranks - from
  allocate (values(n, columns), all(rows, columns))
  do j = 1, columns
    do i = 1, n
      values(i, j) = value(from + i, j)
    end do
  end do

  call MPI_File_open(MPI_COMM_WORLD, trim(folder)//'/fortran.dat', MPI_MODE_CREATE + MPI_MODE_WRONLY, &
                     MPI_INFO_NULL, file, ierror)
  if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
  start = 0
  if (n > 0) then
    call MPI_Type_create_subarray(2, [rows, columns], [n, columns], [from, 0], MPI_ORDER_FORTRAN, &
                                  MPI_DOUBLE_PRECISION, block, ierror)
  else
    call MPI_Type_contiguous(0, MPI_DOUBLE_PRECISION, block, ierror)
  end if
  call MPI_Type_commit(block, ierror)
  call MPI_File_set_view(file, start, MPI_DOUBLE_PRECISION, block, 'native', MPI_INFO_NULL, ierror)
  call MPI_File_write_all(file, values, n*columns, MPI_DOUBLE_PRECISION, status, ierror)
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, n_read, ierror)
  if (n_read /= n*columns) call MPI_Abort(MPI_COMM_WORLD, 2, ierror)
  call MPI_File_close(file, ierror)
  if (ierror /= MPI_SUCCESS) call MPI_Abort(MPI_COMM_WORLD, 3, ierror)

  call MPI_File_open(MPI_COMM_WORLD, trim(folder)//'/fortran.dat', MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierror)
  call MPI_File_get_size(file, bytes, ierror)
  if (bytes /= 8*rows*columns) call MPI_Abort(MPI_COMM_WORLD, 4, ierror)
  call MPI_File_read_at_all(file, start, all, rows*columns, MPI_DOUBLE_PRECISION, status, ierror)
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, n_read, ierror)
  if (n_read /= rows*columns) call MPI_Abort(MPI_COMM_WORLD, 5, ierror)
  do j = 1, columns
    do i = 1, rows
      if (.not. abs(all(i, j) - value(i, j)) <= bound) call MPI_Abort(MPI_COMM_WORLD, 6, ierror)
    end do
  end do
  call MPI_File_close(file, ierror)
  call MPI_Finalize(ierror)

contains
  double precision function value(i, j)
    integer, intent(in) :: i, j
    value = sin(i*0.1d0)*cos(j*0.07d0)
  end function
end program
