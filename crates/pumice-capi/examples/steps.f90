!> Writes the time steps of a simulation as they come, stops, goes on with the same file, and reads single steps back.
program steps
  use, intrinsic :: iso_c_binding
  use pumice
  implicit none

  integer, parameter :: nx = 96, ny = 64, n_first = 12, n_all = 20
  real(c_double), parameter :: bound = 1d-3
  real(c_float) :: temperature(nx, ny), every(nx, ny, n_all)
  real(c_float) :: restored(nx, ny, 1)
  type(c_ptr) :: config, writer, reader
  integer(c_int64_t) :: n_bytes
  integer :: step

  ! A file of (nx, ny) slabs. The bound must be absolute: the range of all steps is not known when the first is written.
  config = pumice_config_new(pumice_bound_abs, bound)
  call check(pumice_config_add_attribute(config, 'units', 'K'))
  call check(pumice_writer_create_file('steps.pum', config, pumice_dtype_f32, [nx, ny], writer))
  call pumice_config_free(config)
  do step = 1, n_first
    call simulate(step)
    call check(pumice_writer_write(writer, temperature))
  end do
  ! The file appears under its name when it is finished.
  call check(pumice_writer_finish(writer, n_bytes))
  call pumice_writer_free(writer)

  ! A later run of the simulation adds its steps.
  call check(pumice_writer_append_file('steps.pum', pumice_dtype_f32, 0, writer))
  do step = n_first + 1, n_all
    call simulate(step)
    call check(pumice_writer_write(writer, temperature))
  end do
  call check(pumice_writer_finish(writer, n_bytes))
  call pumice_writer_free(writer)
  print '(a, i0, a, i0, a)', 'steps.pum: ', size(every) * 4, ' bytes of values became ', n_bytes, ' bytes'

  ! Any step, without decoding the others: the last axis is that of the steps.
  call check(pumice_reader_open_file('steps.pum', c_null_ptr, reader))
  if (any(pumice_reader_shape(reader) /= [nx, ny, n_all])) error stop 'not the steps that were written'
  do step = n_all, 1, -1
    call check(pumice_reader_read_region_into(reader, [1, 1, step], [nx, ny, 1], restored))
    if (any(abs(real(restored(:, :, 1), c_double) - every(:, :, step)) > bound)) error stop 'the bound is broken'
  end do
  call pumice_reader_free(reader)
  print '(a, i0, a)', 'all ', n_all, ' steps are within the bound'
  open(newunit=step, file='steps.pum')
  close(step, status='delete')

contains

  !> One step of the simulation, which also keeps it for the comparison at the end.
  subroutine simulate(step)
    integer, intent(in) :: step
    integer :: i, j
    do j = 1, ny
      do i = 1, nx
        temperature(i, j) = 285 + 10 * sin(0.07 * i + 0.1 * step) * cos(0.05 * j)
      end do
    end do
    every(:, :, step) = temperature
  end subroutine

  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status == pumice_status_ok) return
    print '(2a)', 'error: ', pumice_last_error()
    error stop
  end subroutine

end program steps
