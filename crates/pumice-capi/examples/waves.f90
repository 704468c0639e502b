!> Compresses a Fortran array in memory, and writes one to a file slab by slab.
program waves
  use, intrinsic :: iso_c_binding
  use pumice
  implicit none

  integer, parameter :: nx = 40, ny = 30, nz = 20
  real(c_float) :: field(nx, ny, nz), restored(nx, ny, nz)
  real(c_double) :: slab(nx, ny), part(5, 6, 1), error
  type(c_ptr) :: config, buffer, reader, writer
  integer(c_size_t) :: most
  integer(c_int64_t) :: n_bytes
  character(:), allocatable :: key, text
  integer :: i, j, k
  logical :: is_right

  do k = 1, nz
    do j = 1, ny
      do i = 1, nx
        field(i, j, k) = sin(0.1 * i) * cos(0.2 * j) + 0.01 * k
      end do
    end do
  end do
  field(7, 8, 9) = 1e20 ! no data

  ! In memory: at least 60 dB, and the fill value named.
  config = pumice_config_new(pumice_bound_psnr, 60d0)
  call check(pumice_config_set_fill(config, real(1e20, c_double)))
  call check(pumice_config_add_attribute(config, 'units', 'm'))
  call check(pumice_max_compressed_size(config, field, most))
  call check(pumice_compress(config, field, buffer))
  call pumice_config_free(config)
  print '(a, i0, a, i0)', 'bytes: ', size(field) * 4, ' became ', pumice_buffer_size(buffer)
  if (pumice_buffer_size(buffer) > most) error stop 'larger than announced'
  call check(pumice_decompress_into(pumice_buffer_data(buffer), pumice_buffer_size(buffer), c_null_ptr, restored))
  call check(pumice_reader_open_memory(pumice_buffer_data(buffer), pumice_buffer_size(buffer), c_null_ptr, reader))
  call check(pumice_reader_check(reader, field, error))
  call check(pumice_reader_attribute(reader, 1, key, text))
  is_right = transfer(restored(7, 8, 9), 0) == transfer(field(7, 8, 9), 0) ! the same bits
  is_right = is_right .and. all(pumice_reader_shape(reader) == [nx, ny, nz])
  is_right = is_right .and. key == 'units' .and. text == 'm' .and. pumice_reader_preset(reader) == 'small'
  if (.not. is_right) error stop 'not what was stored'
  deallocate(key, text)
  call pumice_reader_free(reader)
  call pumice_buffer_free(buffer)

  ! To a file, one (nx, ny) slab at a time: an array (nx, ny, nz).
  config = pumice_config_new(pumice_bound_abs, 1d-4)
  call check(pumice_writer_create_file('waves.pum', config, pumice_dtype_f64, [nx, ny], writer))
  call pumice_config_free(config)
  do k = 1, nz
    slab = field(:, :, k)
    call check(pumice_writer_write(writer, slab))
  end do
  call check(pumice_writer_finish(writer, n_bytes))
  call pumice_writer_free(writer)

  call check(pumice_reader_open_file('waves.pum', c_null_ptr, reader))
  call check(pumice_reader_read_region_into(reader, [11, 21, 5], [5, 6, 1], part))
  if (any(abs(part(:, :, 1) - field(11:15, 21:26, 5)) > 1d-4)) error stop 'the bound is broken'
  call check(pumice_reader_read_region_into(reader, [11, 21, 5], [5, 6, 1], part(:, :, 1)))
  call refuse(pumice_reader_read_region_into(reader, [11, 21, 5], [5, 5, 1], part), &
    'the region has extents (5, 5, 1), but the output (5, 6, 1)')
  call refuse(pumice_reader_read_region_into(reader, [11, 21], [5, 6, 1], part), &
    'start (11, 21) and count (5, 6, 1) must have one number for each axis')
  call refuse(pumice_reader_read_region_into(reader, [11, 21], [5, 6], part), &
    'the region with extents (5, 6) has other axes than the array of extents (40, 30, 20)')
  call refuse(pumice_reader_read_region(reader, pumice_dtype_f64, [11, 26, 5], [5, 6, 1], buffer), &
    'the region from (11, 26, 5) on with extents (5, 6, 1) is not within the array of extents (40, 30, 20)')
  call pumice_reader_free(reader)
  config = pumice_config_new(pumice_bound_abs, 1d-4)
  call refuse(pumice_config_add_region(config, [0, 1], [5, 6], pumice_bound_abs, 1d-6), &
    'the box from (0, 1) on with extents (5, 6) starts before position 1, or has a negative extent')
  call pumice_config_free(config)

  if (pumice_reader_open_file('no such file', c_null_ptr, reader) /= pumice_status_io) error stop 'found'
  print '(2a)', 'as it should be: ', pumice_last_error()
  open(newunit=i, file='waves.pum')
  close(i, status='delete')

contains

  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status == pumice_status_ok) return
    print '(2a)', 'error: ', pumice_last_error()
    error stop
  end subroutine

  !> That a call is refused, and says why.
  subroutine refuse(status, message)
    integer(c_int32_t), intent(in) :: status
    character(*), intent(in) :: message
    if (status == pumice_status_invalid_argument .and. pumice_last_error() == message) return
    print '(2a)', 'not refused as it should be: ', pumice_last_error()
    error stop
  end subroutine

end program waves
