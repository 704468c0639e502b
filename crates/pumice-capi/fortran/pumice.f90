!> Pumice for Fortran: error-bounded compression of floating-point arrays.
!>
!> The functions of pumice.h under the same names, with Fortran arrays and text for its pointers; see there for what they
!> do. Compile this file with your own: modules of one compiler are of no use to another.
!>
!> - Handles are type(c_ptr), freed by the procedure whose name ends in _free.
!> - Functions return a status, pumice_status_ok = 0 if all went well; pumice_last_error() is the message.
!> - Arrays are real(c_float) or real(c_double) of any rank up to 8. Extents, chunk shapes and regions are in Fortran's
!>   order, fastest axis first, and positions start at 1. In the file, and for C and Python, the order is the reverse:
!>   values(nx, ny, nz) is an array of shape (nz, ny, nx) there.
!> - Rows that are written slab by slab are added along the last axis.
module pumice
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer(c_int32_t), parameter, public :: pumice_status_ok = 0, pumice_status_bound_broken = 1, &
    pumice_status_invalid_argument = 2, pumice_status_unsupported = 3, pumice_status_corrupt = 4, &
    pumice_status_truncated = 5, pumice_status_io = 6, pumice_status_limit_exceeded = 7, pumice_status_device = 8, &
    pumice_status_internal = 101
  integer(c_int32_t), parameter, public :: pumice_dtype_f32 = 1, pumice_dtype_f64 = 2
  integer(c_int32_t), parameter, public :: pumice_bound_lossless = 0, pumice_bound_abs = 1, pumice_bound_rel = 2, &
    pumice_bound_pw_rel = 3, pumice_bound_psnr = 4, pumice_bound_l2 = 5, pumice_bound_ratio = 6
  integer(c_int), parameter, public :: pumice_hdf5_filter_id = 480, pumice_hdf5_max_cd_values = 32
  integer(c_int32_t), parameter, public :: pumice_stable_off = 0, pumice_stable_on = 1, pumice_stable_auto = 2

  public :: pumice_version, pumice_last_error, pumice_config_new, pumice_config_free, pumice_config_add_bound, &
    pumice_config_add_region, pumice_config_set_bin, pumice_config_set_preset, pumice_config_set_stable, &
    pumice_config_set_threads, &
    pumice_config_set_fill, pumice_config_set_fills, pumice_config_set_range, pumice_config_set_chunk_shape, &
    pumice_config_add_attribute, pumice_hdf5_cd_values, pumice_hdf5_compress_chunk, &
    pumice_decode_options_new, pumice_decode_options_free, pumice_decode_options_set_threads, &
    pumice_decode_options_set_max_bytes, pumice_buffer_data, pumice_buffer_size, pumice_buffer_free, &
    pumice_max_compressed_size, pumice_compress, pumice_compress_into, pumice_decompress, pumice_decompress_into, &
    pumice_reader_open_file, pumice_reader_open_memory, pumice_reader_free, pumice_reader_dtype, &
    pumice_reader_rank, pumice_reader_shape, pumice_reader_chunk_shape, pumice_reader_n_values, &
    pumice_reader_compressed_size, pumice_reader_format_version, pumice_reader_preset, pumice_reader_is_stable, &
    pumice_reader_abs_bound, &
    pumice_reader_n_bounds, pumice_reader_bound, pumice_reader_n_fills, pumice_reader_fill, &
    pumice_reader_n_attributes, pumice_reader_attribute, pumice_reader_read, pumice_reader_read_into, &
    pumice_reader_read_region, pumice_reader_read_region_into, pumice_reader_check, pumice_writer_create_file, &
    pumice_writer_append_file, pumice_writer_create_callback, pumice_writer_write, pumice_writer_finish, &
    pumice_writer_free

  ! What needs no translation is called directly; the others are wrapped below.
  interface
    function c_version() result(r) bind(C, name='pumice_version')
      import
      type(c_ptr) :: r
    end function
    function c_last_error() result(r) bind(C, name='pumice_last_error')
      import
      type(c_ptr) :: r
    end function
    function c_refuse(message) result(r) bind(C, name='pumice_refuse')
      import
      character(kind=c_char), intent(in) :: message(*)
      integer(c_int32_t) :: r
    end function
    function pumice_config_new(bound, e) result(r) bind(C, name='pumice_config_new')
      import
      integer(c_int32_t), value :: bound
      real(c_double), value :: e
      type(c_ptr) :: r
    end function
    subroutine pumice_config_free(config) bind(C, name='pumice_config_free')
      import
      type(c_ptr), value :: config
    end subroutine
    function pumice_config_add_bound(config, bound, e) result(r) bind(C, name='pumice_config_add_bound')
      import
      type(c_ptr), value :: config
      integer(c_int32_t), value :: bound
      real(c_double), value :: e
      integer(c_int32_t) :: r
    end function
    function c_config_add_region(config, rank, start, count, bound, e) &
        result(r) bind(C, name='pumice_config_add_region')
      import
      type(c_ptr), value :: config
      integer(c_size_t), value :: rank
      type(c_ptr), value :: start, count
      integer(c_int32_t), value :: bound
      real(c_double), value :: e
      integer(c_int32_t) :: r
    end function
    function c_config_set_bin(config, rank, factors) result(r) bind(C, name='pumice_config_set_bin')
      import
      type(c_ptr), value :: config
      integer(c_size_t), value :: rank
      type(c_ptr), value :: factors
      integer(c_int32_t) :: r
    end function
    function c_config_set_preset(config, preset) result(r) bind(C, name='pumice_config_set_preset')
      import
      type(c_ptr), value :: config
      character(kind=c_char), intent(in) :: preset(*)
      integer(c_int32_t) :: r
    end function
    function pumice_config_set_stable(config, stable) result(r) bind(C, name='pumice_config_set_stable')
      import
      type(c_ptr), value :: config
      integer(c_int32_t), value :: stable
      integer(c_int32_t) :: r
    end function
    function pumice_config_set_threads(config, threads) result(r) bind(C, name='pumice_config_set_threads')
      import
      type(c_ptr), value :: config
      integer(c_size_t), value :: threads
      integer(c_int32_t) :: r
    end function
    function pumice_config_set_fill(config, value) result(r) bind(C, name='pumice_config_set_fill')
      import
      type(c_ptr), value :: config
      real(c_double), value :: value
      integer(c_int32_t) :: r
    end function
    function pumice_config_set_fills(config, n, values) result(r) bind(C, name='pumice_config_set_fills')
      import
      type(c_ptr), value :: config
      integer(c_size_t), value :: n
      real(c_double), intent(in) :: values(*)
      integer(c_int32_t) :: r
    end function
    function pumice_config_set_range(config, min, max) result(r) bind(C, name='pumice_config_set_range')
      import
      type(c_ptr), value :: config
      real(c_double), value :: min, max
      integer(c_int32_t) :: r
    end function
    function pumice_hdf5_cd_values(config, cd_values, capacity, n) result(r) bind(C, name='pumice_hdf5_cd_values')
      import
      type(c_ptr), value :: config
      integer(c_int), intent(out) :: cd_values(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: n
      integer(c_int32_t) :: r
    end function
    function pumice_hdf5_compress_chunk(cd_values, n_cd_values, values, rank, count, n_bytes, threads, buffer) &
        result(r) bind(C, name='pumice_hdf5_compress_chunk')
      import
      integer(c_int), intent(in) :: cd_values(*)
      integer(c_size_t), value :: n_cd_values
      type(c_ptr), value :: values
      integer(c_size_t), value :: rank
      ! As in C: the reverse of the extents in Fortran.
      integer(c_size_t), intent(in) :: count(*)
      integer(c_size_t), value :: n_bytes, threads
      type(c_ptr), intent(out) :: buffer
      integer(c_int32_t) :: r
    end function
    function c_config_set_chunk_shape(config, rank, chunk_shape) &
        result(r) bind(C, name='pumice_config_set_chunk_shape')
      import
      type(c_ptr), value :: config
      integer(c_size_t), value :: rank
      type(c_ptr), value :: chunk_shape
      integer(c_int32_t) :: r
    end function
    function c_config_add_attribute(config, key, value) result(r) bind(C, name='pumice_config_add_attribute')
      import
      type(c_ptr), value :: config
      character(kind=c_char), intent(in) :: key(*), value(*)
      integer(c_int32_t) :: r
    end function
    function pumice_decode_options_new() result(r) bind(C, name='pumice_decode_options_new')
      import
      type(c_ptr) :: r
    end function
    subroutine pumice_decode_options_free(options) bind(C, name='pumice_decode_options_free')
      import
      type(c_ptr), value :: options
    end subroutine
    function pumice_decode_options_set_threads(options, threads) &
        result(r) bind(C, name='pumice_decode_options_set_threads')
      import
      type(c_ptr), value :: options
      integer(c_size_t), value :: threads
      integer(c_int32_t) :: r
    end function
    function pumice_decode_options_set_max_bytes(options, max_bytes) &
        result(r) bind(C, name='pumice_decode_options_set_max_bytes')
      import
      type(c_ptr), value :: options
      integer(c_int64_t), value :: max_bytes
      integer(c_int32_t) :: r
    end function
    function pumice_buffer_data(buffer) result(r) bind(C, name='pumice_buffer_data')
      import
      type(c_ptr), value :: buffer
      type(c_ptr) :: r
    end function
    function pumice_buffer_size(buffer) result(r) bind(C, name='pumice_buffer_size')
      import
      type(c_ptr), value :: buffer
      integer(c_size_t) :: r
    end function
    subroutine pumice_buffer_free(buffer) bind(C, name='pumice_buffer_free')
      import
      type(c_ptr), value :: buffer
    end subroutine
    function c_max_compressed_size(config, dtype, rank, shape, n_bytes) &
        result(r) bind(C, name='pumice_max_compressed_size')
      import
      type(c_ptr), value :: config
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: rank
      type(c_ptr), value :: shape
      integer(c_size_t), intent(out) :: n_bytes
      integer(c_int32_t) :: r
    end function
    function c_compress(config, dtype, values, rank, shape, buffer) result(r) bind(C, name='pumice_compress')
      import
      type(c_ptr), value :: config
      integer(c_int32_t), value :: dtype
      type(c_ptr), value :: values
      integer(c_size_t), value :: rank
      type(c_ptr), value :: shape
      type(c_ptr), intent(out) :: buffer
      integer(c_int32_t) :: r
    end function
    function c_compress_into(config, dtype, values, rank, shape, out, capacity, n_bytes) &
        result(r) bind(C, name='pumice_compress_into')
      import
      type(c_ptr), value :: config
      integer(c_int32_t), value :: dtype
      type(c_ptr), value :: values
      integer(c_size_t), value :: rank
      type(c_ptr), value :: shape, out
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: n_bytes
      integer(c_int32_t) :: r
    end function
    function pumice_decompress(bytes, n_bytes, options, dtype, buffer) result(r) bind(C, name='pumice_decompress')
      import
      type(c_ptr), value :: bytes
      integer(c_size_t), value :: n_bytes
      type(c_ptr), value :: options
      integer(c_int32_t), value :: dtype
      type(c_ptr), intent(out) :: buffer
      integer(c_int32_t) :: r
    end function
    function c_decompress_into(bytes, n_bytes, options, dtype, values, n_values) &
        result(r) bind(C, name='pumice_decompress_into')
      import
      type(c_ptr), value :: bytes
      integer(c_size_t), value :: n_bytes
      type(c_ptr), value :: options
      integer(c_int32_t), value :: dtype
      type(c_ptr), value :: values
      integer(c_size_t), value :: n_values
      integer(c_int32_t) :: r
    end function
    function c_reader_open_file(path, options, reader) result(r) bind(C, name='pumice_reader_open_file')
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: reader
      integer(c_int32_t) :: r
    end function
    function pumice_reader_open_memory(bytes, n_bytes, options, reader) &
        result(r) bind(C, name='pumice_reader_open_memory')
      import
      type(c_ptr), value :: bytes
      integer(c_size_t), value :: n_bytes
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: reader
      integer(c_int32_t) :: r
    end function
    subroutine pumice_reader_free(reader) bind(C, name='pumice_reader_free')
      import
      type(c_ptr), value :: reader
    end subroutine
    function pumice_reader_dtype(reader) result(r) bind(C, name='pumice_reader_dtype')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t) :: r
    end function
    function pumice_reader_rank(reader) result(r) bind(C, name='pumice_reader_rank')
      import
      type(c_ptr), value :: reader
      integer(c_size_t) :: r
    end function
    function c_reader_shape(reader) result(r) bind(C, name='pumice_reader_shape')
      import
      type(c_ptr), value :: reader
      type(c_ptr) :: r
    end function
    function c_reader_chunk_shape(reader) result(r) bind(C, name='pumice_reader_chunk_shape')
      import
      type(c_ptr), value :: reader
      type(c_ptr) :: r
    end function
    function pumice_reader_n_values(reader) result(r) bind(C, name='pumice_reader_n_values')
      import
      type(c_ptr), value :: reader
      integer(c_size_t) :: r
    end function
    function pumice_reader_compressed_size(reader) result(r) bind(C, name='pumice_reader_compressed_size')
      import
      type(c_ptr), value :: reader
      integer(c_int64_t) :: r
    end function
    function pumice_reader_format_version(reader) result(r) bind(C, name='pumice_reader_format_version')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t) :: r
    end function
    function c_reader_preset(reader) result(r) bind(C, name='pumice_reader_preset')
      import
      type(c_ptr), value :: reader
      type(c_ptr) :: r
    end function
    function pumice_reader_is_stable(reader) result(r) bind(C, name='pumice_reader_is_stable')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t) :: r
    end function
    function pumice_reader_abs_bound(reader) result(r) bind(C, name='pumice_reader_abs_bound')
      import
      type(c_ptr), value :: reader
      real(c_double) :: r
    end function
    function pumice_reader_n_bounds(reader) result(r) bind(C, name='pumice_reader_n_bounds')
      import
      type(c_ptr), value :: reader
      integer(c_size_t) :: r
    end function
    function c_reader_bound(reader, index, bound, e) result(r) bind(C, name='pumice_reader_bound')
      import
      type(c_ptr), value :: reader
      integer(c_size_t), value :: index
      integer(c_int32_t), intent(out) :: bound
      real(c_double), intent(out) :: e
      integer(c_int32_t) :: r
    end function
    function pumice_reader_n_fills(reader) result(r) bind(C, name='pumice_reader_n_fills')
      import
      type(c_ptr), value :: reader
      integer(c_size_t) :: r
    end function
    function c_reader_fill(reader, index, value) result(r) bind(C, name='pumice_reader_fill')
      import
      type(c_ptr), value :: reader
      integer(c_size_t), value :: index
      real(c_double), intent(out) :: value
      integer(c_int32_t) :: r
    end function
    function pumice_reader_n_attributes(reader) result(r) bind(C, name='pumice_reader_n_attributes')
      import
      type(c_ptr), value :: reader
      integer(c_size_t) :: r
    end function
    function c_reader_attribute(reader, index, key, value) result(r) bind(C, name='pumice_reader_attribute')
      import
      type(c_ptr), value :: reader
      integer(c_size_t), value :: index
      type(c_ptr), intent(out) :: key, value
      integer(c_int32_t) :: r
    end function
    function pumice_reader_read(reader, dtype, buffer) result(r) bind(C, name='pumice_reader_read')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: dtype
      type(c_ptr), intent(out) :: buffer
      integer(c_int32_t) :: r
    end function
    function c_reader_read_into(reader, dtype, values, n_values) result(r) bind(C, name='pumice_reader_read_into')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: dtype
      type(c_ptr), value :: values
      integer(c_size_t), value :: n_values
      integer(c_int32_t) :: r
    end function
    function c_reader_read_region(reader, dtype, rank, start, count, buffer) &
        result(r) bind(C, name='pumice_reader_read_region')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: rank
      type(c_ptr), value :: start, count
      type(c_ptr), intent(out) :: buffer
      integer(c_int32_t) :: r
    end function
    function c_reader_read_region_into(reader, dtype, rank, start, count, values, n_values) &
        result(r) bind(C, name='pumice_reader_read_region_into')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: rank
      type(c_ptr), value :: start, count, values
      integer(c_size_t), value :: n_values
      integer(c_int32_t) :: r
    end function
    function c_reader_check(reader, dtype, original, n_values, max_abs_error) &
        result(r) bind(C, name='pumice_reader_check')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: dtype
      type(c_ptr), value :: original
      integer(c_size_t), value :: n_values
      real(c_double), intent(out) :: max_abs_error
      integer(c_int32_t) :: r
    end function
    function c_writer_create_file(path, config, dtype, row_rank, row_shape, writer) &
        result(r) bind(C, name='pumice_writer_create_file')
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: config
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: row_rank
      type(c_ptr), value :: row_shape
      type(c_ptr), intent(out) :: writer
      integer(c_int32_t) :: r
    end function
    function c_writer_append_file(path, dtype, threads, writer) result(r) bind(C, name='pumice_writer_append_file')
      import
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: threads
      type(c_ptr), intent(out) :: writer
      integer(c_int32_t) :: r
    end function
    function c_writer_create_callback(put, user, config, dtype, row_rank, row_shape, writer) &
        result(r) bind(C, name='pumice_writer_create_callback')
      import
      type(c_funptr), value :: put
      type(c_ptr), value :: user, config
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: row_rank
      type(c_ptr), value :: row_shape
      type(c_ptr), intent(out) :: writer
      integer(c_int32_t) :: r
    end function
    function c_writer_write(writer, values, n_values) result(r) bind(C, name='pumice_writer_write')
      import
      type(c_ptr), value :: writer, values
      integer(c_size_t), value :: n_values
      integer(c_int32_t) :: r
    end function
    function pumice_writer_finish(writer, compressed_size) result(r) bind(C, name='pumice_writer_finish')
      import
      type(c_ptr), value :: writer
      integer(c_int64_t), intent(out) :: compressed_size
      integer(c_int32_t) :: r
    end function
    subroutine pumice_writer_free(writer) bind(C, name='pumice_writer_free')
      import
      type(c_ptr), value :: writer
    end subroutine
  end interface

  interface pumice_max_compressed_size
    module procedure max_compressed_size_f32, max_compressed_size_f64
  end interface
  interface pumice_compress
    module procedure compress_f32, compress_f64
  end interface
  interface pumice_compress_into
    module procedure compress_into_f32, compress_into_f64
  end interface
  interface pumice_decompress_into
    module procedure decompress_into_f32, decompress_into_f64
  end interface
  interface pumice_reader_read_into
    module procedure reader_read_into_f32, reader_read_into_f64
  end interface
  interface pumice_reader_read_region_into
    module procedure reader_read_region_into_f32, reader_read_region_into_f64
  end interface
  interface pumice_reader_check
    module procedure reader_check_f32, reader_check_f64
  end interface
  interface pumice_writer_write
    module procedure writer_write_f32, writer_write_f64
  end interface

contains

  !> Version of the library.
  function pumice_version() result(text)
    character(:), allocatable :: text
    text = fortran_text(c_version())
  end function

  !> What went wrong in the last call of this thread that failed.
  function pumice_last_error() result(text)
    character(:), allocatable :: text
    text = fortran_text(c_last_error())
  end function

  !> The preset that the stream was written with.
  function pumice_reader_preset(reader) result(text)
    type(c_ptr), intent(in) :: reader
    character(:), allocatable :: text
    text = fortran_text(c_reader_preset(reader))
  end function

  !> Extents, fastest axis first.
  function pumice_reader_shape(reader) result(extents)
    type(c_ptr), intent(in) :: reader
    integer(c_size_t), allocatable :: extents(:)
    extents = fortran_extents(c_reader_shape(reader), pumice_reader_rank(reader))
  end function

  !> Extents of chunks, fastest axis first.
  function pumice_reader_chunk_shape(reader) result(extents)
    type(c_ptr), intent(in) :: reader
    integer(c_size_t), allocatable :: extents(:)
    extents = fortran_extents(c_reader_chunk_shape(reader), pumice_reader_rank(reader))
  end function

  !> A bound that was asked for; the first has index 1.
  function pumice_reader_bound(reader, index, bound, e) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: index
    integer(c_int32_t), intent(out) :: bound
    real(c_double), intent(out) :: e
    integer(c_int32_t) :: status
    status = c_reader_bound(reader, int(index - 1, c_size_t), bound, e)
  end function

  !> A fill value; the first has index 1.
  function pumice_reader_fill(reader, index, value) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: index
    real(c_double), intent(out) :: value
    integer(c_int32_t) :: status
    status = c_reader_fill(reader, int(index - 1, c_size_t), value)
  end function

  !> An attribute; the first has index 1.
  function pumice_reader_attribute(reader, index, key, value) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: index
    character(:), allocatable, intent(out) :: key, value
    integer(c_int32_t) :: status
    type(c_ptr) :: key_text, value_text
    status = c_reader_attribute(reader, int(index - 1, c_size_t), key_text, value_text)
    if (status /= pumice_status_ok) return
    key = fortran_text(key_text)
    value = fortran_text(value_text)
  end function

  function pumice_config_set_preset(config, preset) result(status)
    type(c_ptr), intent(in) :: config
    character(*), intent(in) :: preset
    integer(c_int32_t) :: status
    status = c_config_set_preset(config, trim(preset)//c_null_char)
  end function

  function pumice_config_add_attribute(config, key, value) result(status)
    type(c_ptr), intent(in) :: config
    character(*), intent(in) :: key, value
    integer(c_int32_t) :: status
    status = c_config_add_attribute(config, trim(key)//c_null_char, trim(value)//c_null_char)
  end function

  function pumice_config_set_chunk_shape(config, chunk_shape) result(status)
    type(c_ptr), intent(in) :: config
    integer, intent(in) :: chunk_shape(:)
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(size(chunk_shape))
    extents = c_order(chunk_shape)
    status = c_config_set_chunk_shape(config, size(extents, kind=c_size_t), c_loc(extents))
  end function

  function pumice_config_set_bin(config, factors) result(status)
    type(c_ptr), intent(in) :: config
    integer, intent(in) :: factors(:)
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(size(factors))
    extents = c_order(factors)
    status = c_config_set_bin(config, size(extents, kind=c_size_t), c_loc(extents))
  end function

  !> One more bound in the box of `count` values along each axis from `start` on; positions start at 1.
  function pumice_config_add_region(config, start, count, bound, e) result(status)
    type(c_ptr), intent(in) :: config
    integer, intent(in) :: start(:), count(:)
    integer(c_int32_t), intent(in) :: bound
    real(c_double), intent(in) :: e
    integer(c_int32_t) :: status
    integer(c_size_t), target :: from(size(start)), extents(size(start))
    status = refused(box_fault(int(start, c_size_t), int(count, c_size_t)))
    if (status /= pumice_status_ok) return
    from = c_order(start - 1)
    extents = c_order(count)
    status = c_config_add_region(config, size(from, kind=c_size_t), c_loc(from), c_loc(extents), bound, e)
  end function

  !> `options` are those to decode with, or c_null_ptr.
  function pumice_reader_open_file(path, options, reader) result(status)
    character(*), intent(in) :: path
    type(c_ptr), intent(in) :: options
    type(c_ptr), intent(out) :: reader
    integer(c_int32_t) :: status
    reader = c_null_ptr
    status = c_reader_open_file(trim(path)//c_null_char, options, reader)
  end function

  !> A box of the array as a new buffer; positions start at 1.
  function pumice_reader_read_region(reader, dtype, start, count, buffer) result(status)
    type(c_ptr), intent(in) :: reader
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: start(:), count(:)
    type(c_ptr), intent(out) :: buffer
    integer(c_int32_t) :: status
    integer(c_size_t), target :: from(size(start)), extents(size(start))
    buffer = c_null_ptr
    status = refused(region_fault(reader, int(start, c_size_t), int(count, c_size_t)))
    if (status /= pumice_status_ok) return
    from = c_order(start - 1)
    extents = c_order(count)
    status = c_reader_read_region(reader, dtype, size(from, kind=c_size_t), c_loc(from), c_loc(extents), buffer)
  end function

  !> Starts a file of slabs of this shape, which are added along one axis more, the last.
  function pumice_writer_create_file(path, config, dtype, slab_shape, writer) result(status)
    character(*), intent(in) :: path
    type(c_ptr), intent(in) :: config
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: slab_shape(:)
    type(c_ptr), intent(out) :: writer
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(size(slab_shape))
    writer = c_null_ptr
    extents = c_order(slab_shape)
    status = c_writer_create_file(trim(path)//c_null_char, config, dtype, size(extents, kind=c_size_t), c_loc(extents), &
      writer)
  end function

  !> Goes on with a file; `threads` are the workers, 0 for one per core.
  function pumice_writer_append_file(path, dtype, threads, writer) result(status)
    character(*), intent(in) :: path
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: threads
    type(c_ptr), intent(out) :: writer
    integer(c_int32_t) :: status
    writer = c_null_ptr
    status = c_writer_append_file(trim(path)//c_null_char, dtype, int(threads, c_size_t), writer)
  end function

  !> Starts a stream whose bytes go to `put`, the c_funloc of a bind(C) function.
  function pumice_writer_create_callback(put, user, config, dtype, slab_shape, writer) result(status)
    type(c_funptr), intent(in) :: put
    type(c_ptr), intent(in) :: user, config
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: slab_shape(:)
    type(c_ptr), intent(out) :: writer
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(size(slab_shape))
    writer = c_null_ptr
    extents = c_order(slab_shape)
    status = c_writer_create_callback(put, user, config, dtype, size(extents, kind=c_size_t), c_loc(extents), writer)
  end function

  ! The same for each type of values.

  function max_compressed_size_f32(config, values, n_bytes) result(status)
    type(c_ptr), intent(in) :: config
    real(c_float), intent(in) :: values(..)
    integer(c_size_t), intent(out) :: n_bytes
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(rank(values))
    n_bytes = 0
    extents = c_order(shape(values))
    status = c_max_compressed_size(config, pumice_dtype_f32, size(extents, kind=c_size_t), c_loc(extents), n_bytes)
  end function

  function compress_f32(config, values, buffer) result(status)
    type(c_ptr), intent(in) :: config
    real(c_float), intent(in), contiguous, target :: values(..)
    type(c_ptr), intent(out) :: buffer
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(rank(values))
    buffer = c_null_ptr
    extents = c_order(shape(values))
    status = c_compress(config, pumice_dtype_f32, c_loc(values), size(extents, kind=c_size_t), c_loc(extents), buffer)
  end function

  function compress_into_f32(config, values, bytes, n_bytes) result(status)
    type(c_ptr), intent(in) :: config
    real(c_float), intent(in), contiguous, target :: values(..)
    integer(c_int8_t), intent(inout), contiguous, target :: bytes(:)
    integer(c_size_t), intent(out) :: n_bytes
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(rank(values))
    n_bytes = 0
    extents = c_order(shape(values))
    status = c_compress_into(config, pumice_dtype_f32, c_loc(values), size(extents, kind=c_size_t), c_loc(extents), &
      c_loc(bytes), size(bytes, kind=c_size_t), n_bytes)
  end function

  function decompress_into_f32(bytes, n_bytes, options, values) result(status)
    type(c_ptr), intent(in) :: bytes, options
    integer(c_size_t), intent(in) :: n_bytes
    real(c_float), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = c_decompress_into(bytes, n_bytes, options, pumice_dtype_f32, c_loc(values), size(values, kind=c_size_t))
  end function

  function reader_read_into_f32(reader, values) result(status)
    type(c_ptr), intent(in) :: reader
    real(c_float), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = c_reader_read_into(reader, pumice_dtype_f32, c_loc(values), size(values, kind=c_size_t))
  end function

  !> `values` get the box of `count` values along each axis from `start` on; positions start at 1. They have as many
  !> values as the box, but may lack axes of it.
  function reader_read_region_into_f32(reader, start, count, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: start(:), count(:)
    real(c_float), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    integer(c_size_t), target :: from(size(start)), extents(size(start))
    status = refused(region_fault(reader, int(start, c_size_t), int(count, c_size_t), shape(values, c_size_t)))
    if (status /= pumice_status_ok) return
    from = c_order(start - 1)
    extents = c_order(count)
    status = c_reader_read_region_into(reader, pumice_dtype_f32, size(from, kind=c_size_t), c_loc(from), &
      c_loc(extents), c_loc(values), size(values, kind=c_size_t))
  end function

  function reader_check_f32(reader, original, max_abs_error) result(status)
    type(c_ptr), intent(in) :: reader
    real(c_float), intent(in), contiguous, target :: original(..)
    real(c_double), intent(out) :: max_abs_error
    integer(c_int32_t) :: status
    max_abs_error = 0
    status = c_reader_check(reader, pumice_dtype_f32, c_loc(original), size(original, kind=c_size_t), max_abs_error)
  end function

  !> Adds slabs, one or more, along the last axis.
  function writer_write_f32(writer, values) result(status)
    type(c_ptr), intent(in) :: writer
    real(c_float), intent(in), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = c_writer_write(writer, c_loc(values), size(values, kind=c_size_t))
  end function

  ! The same for each type of values.

  function max_compressed_size_f64(config, values, n_bytes) result(status)
    type(c_ptr), intent(in) :: config
    real(c_double), intent(in) :: values(..)
    integer(c_size_t), intent(out) :: n_bytes
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(rank(values))
    n_bytes = 0
    extents = c_order(shape(values))
    status = c_max_compressed_size(config, pumice_dtype_f64, size(extents, kind=c_size_t), c_loc(extents), n_bytes)
  end function

  function compress_f64(config, values, buffer) result(status)
    type(c_ptr), intent(in) :: config
    real(c_double), intent(in), contiguous, target :: values(..)
    type(c_ptr), intent(out) :: buffer
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(rank(values))
    buffer = c_null_ptr
    extents = c_order(shape(values))
    status = c_compress(config, pumice_dtype_f64, c_loc(values), size(extents, kind=c_size_t), c_loc(extents), buffer)
  end function

  function compress_into_f64(config, values, bytes, n_bytes) result(status)
    type(c_ptr), intent(in) :: config
    real(c_double), intent(in), contiguous, target :: values(..)
    integer(c_int8_t), intent(inout), contiguous, target :: bytes(:)
    integer(c_size_t), intent(out) :: n_bytes
    integer(c_int32_t) :: status
    integer(c_size_t), target :: extents(rank(values))
    n_bytes = 0
    extents = c_order(shape(values))
    status = c_compress_into(config, pumice_dtype_f64, c_loc(values), size(extents, kind=c_size_t), c_loc(extents), &
      c_loc(bytes), size(bytes, kind=c_size_t), n_bytes)
  end function

  function decompress_into_f64(bytes, n_bytes, options, values) result(status)
    type(c_ptr), intent(in) :: bytes, options
    integer(c_size_t), intent(in) :: n_bytes
    real(c_double), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = c_decompress_into(bytes, n_bytes, options, pumice_dtype_f64, c_loc(values), size(values, kind=c_size_t))
  end function

  function reader_read_into_f64(reader, values) result(status)
    type(c_ptr), intent(in) :: reader
    real(c_double), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = c_reader_read_into(reader, pumice_dtype_f64, c_loc(values), size(values, kind=c_size_t))
  end function

  !> `values` get the box of `count` values along each axis from `start` on; positions start at 1. They have as many
  !> values as the box, but may lack axes of it.
  function reader_read_region_into_f64(reader, start, count, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: start(:), count(:)
    real(c_double), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    integer(c_size_t), target :: from(size(start)), extents(size(start))
    status = refused(region_fault(reader, int(start, c_size_t), int(count, c_size_t), shape(values, c_size_t)))
    if (status /= pumice_status_ok) return
    from = c_order(start - 1)
    extents = c_order(count)
    status = c_reader_read_region_into(reader, pumice_dtype_f64, size(from, kind=c_size_t), c_loc(from), &
      c_loc(extents), c_loc(values), size(values, kind=c_size_t))
  end function

  function reader_check_f64(reader, original, max_abs_error) result(status)
    type(c_ptr), intent(in) :: reader
    real(c_double), intent(in), contiguous, target :: original(..)
    real(c_double), intent(out) :: max_abs_error
    integer(c_int32_t) :: status
    max_abs_error = 0
    status = c_reader_check(reader, pumice_dtype_f64, c_loc(original), size(original, kind=c_size_t), max_abs_error)
  end function

  !> Adds slabs, one or more, along the last axis.
  function writer_write_f64(writer, values) result(status)
    type(c_ptr), intent(in) :: writer
    real(c_double), intent(in), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = c_writer_write(writer, c_loc(values), size(values, kind=c_size_t))
  end function

  !> What is wrong with a box of any array: '' if nothing.
  function box_fault(start, count) result(message)
    integer(c_size_t), intent(in) :: start(:), count(:)
    character(:), allocatable :: message
    message = ''
    if (size(start) /= size(count)) then
      message = 'start '//text_of(start)//' and count '//text_of(count)//' must have one number for each axis'
    else if (any(start < 1) .or. any(count < 0)) then
      message = 'the box from '//text_of(start)//' on with extents '//text_of(count)// &
        ' starts before position 1, or has a negative extent'
    end if
  end function

  !> What is wrong with a region of what `reader` reads, and with an array of these extents for its values: '' if
  !> nothing. The library would say so too, but in the order of C and with positions from 0 on.
  function region_fault(reader, start, count, extents) result(message)
    type(c_ptr), intent(in) :: reader
    integer(c_size_t), intent(in) :: start(:), count(:)
    integer(c_size_t), intent(in), optional :: extents(:)
    character(:), allocatable :: message
    integer(c_size_t), allocatable :: whole(:)
    message = box_fault(start, count)
    if (message /= '' .or. .not. c_associated(reader)) return
    whole = pumice_reader_shape(reader)
    if (size(start) /= size(whole)) then
      message = 'the region with extents '//text_of(count)//' has other axes than the array of extents '// &
        text_of(whole)
    else if (any(start - 1 + count > whole)) then
      message = 'the region from '//text_of(start)//' on with extents '//text_of(count)// &
        ' is not within the array of extents '//text_of(whole)
    else if (present(extents)) then
      if (product(extents) /= product(count)) &
        message = 'the region has extents '//text_of(count)//', but the output '//text_of(extents)
    end if
  end function

  !> The status for such a message, which pumice_last_error() then gives.
  function refused(message) result(status)
    character(*), intent(in) :: message
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (message /= '') status = c_refuse(message//c_null_char)
  end function

  !> Numbers as text, such as (40, 30, 20).
  function text_of(numbers) result(text)
    integer(c_size_t), intent(in) :: numbers(:)
    character(:), allocatable :: text
    character(20) :: number
    integer :: i
    text = '('
    do i = 1, size(numbers)
      write(number, '(i0)') numbers(i)
      if (i > 1) text = text//', '
      text = text//trim(number)
    end do
    text = text//')'
  end function

  !> Extents or positions in the order of C.
  pure function c_order(numbers) result(reversed)
    integer, intent(in) :: numbers(:)
    integer(c_size_t) :: reversed(size(numbers))
    reversed = int(numbers(size(numbers):1:-1), c_size_t)
  end function

  function fortran_extents(pointer, n) result(extents)
    type(c_ptr), intent(in) :: pointer
    integer(c_size_t), intent(in) :: n
    integer(c_size_t), allocatable :: extents(:)
    integer(c_size_t), pointer :: numbers(:)
    allocate(extents(n))
    if (n == 0) return
    call c_f_pointer(pointer, numbers, [n])
    extents = numbers(n:1:-1)
  end function

  function fortran_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i, n
    text = ''
    if (.not. c_associated(pointer)) return
    ! Text of C says where it ends only at its end.
    n = 0
    do
      call c_f_pointer(pointer, characters, [n + 1])
      if (characters(n + 1) == c_null_char) exit
      n = n + 1
    end do
    text = repeat(' ', n)
    do i = 1, n
      text(i:i) = characters(i)
    end do
  end function

end module pumice
