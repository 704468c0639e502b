!> Pumice for Fortran programs that use MPI: the functions of pumice_mpi.h under the same names; see there for what they do.
!> Compile it after pumice.f90, and link with libpumice_mpi instead of libpumice.
!>
!> The rules of module pumice hold here. A communicator is the integer of `use mpi`; with `use mpi_f08` it is
!> comm%mpi_val. A rank gives one box of an array by where it starts and the array of its values, of as many axes; ranks
!> that have several give pointers to pumice_mpi_write_boxes and pumice_mpi_read_boxes.
module pumice_mpi
  use, intrinsic :: iso_c_binding
  use pumice
  implicit none
  private

  integer(c_int32_t), parameter, public :: pumice_mpi_wire_auto = 0, pumice_mpi_wire_compressed = 1, &
    pumice_mpi_wire_plain = 2
  integer(c_int32_t), parameter, public :: pumice_mpi_sum_algorithm_auto = 0, pumice_mpi_sum_algorithm_ring = 1, &
    pumice_mpi_sum_algorithm_halving = 2, pumice_mpi_sum_algorithm_plain = 3

  type, bind(C), public :: pumice_mpi_transfer
    real(c_double) :: abs_bound
    integer(c_int64_t) :: sent_bytes
    integer(c_int32_t) :: is_compressed
  end type

  type, bind(C), public :: pumice_mpi_sum
    integer(c_int64_t) :: n_vectors
    real(c_double) :: abs_bound
    integer(c_int64_t) :: sent_bytes
    integer(c_int32_t) :: algorithm
  end type

  public :: pumice_mpi_comm_new, pumice_mpi_comm_free, pumice_mpi_agree, pumice_mpi_write, pumice_mpi_write_boxes, &
    pumice_mpi_iwrite, pumice_mpi_writing_is_done, pumice_mpi_writing_wait, pumice_mpi_writer_create, &
    pumice_mpi_writer_append, pumice_mpi_writer_write, pumice_mpi_writer_finish, pumice_mpi_writer_free, &
    pumice_mpi_reader_open, pumice_mpi_reader_free, pumice_mpi_reader_dtype, pumice_mpi_reader_rank, &
    pumice_mpi_reader_shape, pumice_mpi_reader_read_all, pumice_mpi_read_boxes, pumice_mpi_reader_read, &
    pumice_mpi_gather, pumice_mpi_all_gather, pumice_mpi_broadcast, pumice_mpi_scatter, pumice_mpi_all_to_all, &
    pumice_mpi_send, pumice_mpi_receive, pumice_mpi_all_reduce, pumice_mpi_reduce_scatter

  interface
    function c_refuse(message) result(r) bind(C, name='pumice_refuse')
      import
      character(kind=c_char), intent(in) :: message(*)
      integer(c_int32_t) :: r
    end function
    function c_comm_new(comm) result(r) bind(C, name='pumice_mpi_comm_new_f')
      import
      integer(c_int), value :: comm
      type(c_ptr) :: r
    end function
    subroutine pumice_mpi_comm_free(comm) bind(C, name='pumice_mpi_comm_free')
      import
      type(c_ptr), value :: comm
    end subroutine
    function pumice_mpi_agree(comm, status) result(r) bind(C, name='pumice_mpi_agree')
      import
      type(c_ptr), value :: comm
      integer(c_int32_t), value :: status
      integer(c_int32_t) :: r
    end function
    function c_iwrite(comm, path, config, dtype, rank, shape, n_boxes, starts, counts, values, writing) &
        result(r) bind(C, name='pumice_mpi_iwrite')
      import
      type(c_ptr), value :: comm, config
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: rank, n_boxes
      integer(c_size_t), intent(in) :: shape(*), starts(*), counts(*)
      type(c_ptr), intent(in) :: values(*)
      type(c_ptr), intent(out) :: writing
      integer(c_int32_t) :: r
    end function
    function c_writing_is_done(writing) result(r) bind(C, name='pumice_mpi_writing_is_done')
      import
      type(c_ptr), value :: writing
      integer(c_int32_t) :: r
    end function
    function pumice_mpi_writing_wait(writing, n_bytes) result(r) bind(C, name='pumice_mpi_writing_wait')
      import
      type(c_ptr), value :: writing
      integer(c_int64_t), intent(out) :: n_bytes
      integer(c_int32_t) :: r
    end function
    function c_writer_create(comm, path, config, dtype, row_rank, row_shape, writer) &
        result(r) bind(C, name='pumice_mpi_writer_create')
      import
      type(c_ptr), value :: comm, config
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: row_rank
      integer(c_size_t), intent(in) :: row_shape(*)
      type(c_ptr), intent(out) :: writer
      integer(c_int32_t) :: r
    end function
    function c_writer_append(comm, path, dtype, threads, writer) result(r) bind(C, name='pumice_mpi_writer_append')
      import
      type(c_ptr), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: threads
      type(c_ptr), intent(out) :: writer
      integer(c_int32_t) :: r
    end function
    function c_writer_write(writer, n_rows, rank, n_boxes, starts, counts, values) &
        result(r) bind(C, name='pumice_mpi_writer_write')
      import
      type(c_ptr), value :: writer
      integer(c_size_t), value :: n_rows, rank, n_boxes
      integer(c_size_t), intent(in) :: starts(*), counts(*)
      type(c_ptr), intent(in) :: values(*)
      integer(c_int32_t) :: r
    end function
    function pumice_mpi_writer_finish(writer, n_bytes) result(r) bind(C, name='pumice_mpi_writer_finish')
      import
      type(c_ptr), value :: writer
      integer(c_int64_t), intent(out) :: n_bytes
      integer(c_int32_t) :: r
    end function
    subroutine pumice_mpi_writer_free(writer) bind(C, name='pumice_mpi_writer_free')
      import
      type(c_ptr), value :: writer
    end subroutine
    function c_write(comm, path, config, wire, dtype, rank, shape, n_boxes, starts, counts, values, n_bytes) &
        result(r) bind(C, name='pumice_mpi_write')
      import
      type(c_ptr), value :: comm, config
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: wire, dtype
      integer(c_size_t), value :: rank, n_boxes
      integer(c_size_t), intent(in) :: shape(*), starts(*), counts(*)
      type(c_ptr), intent(in) :: values(*)
      integer(c_int64_t), intent(out) :: n_bytes
      integer(c_int32_t) :: r
    end function
    function c_reader_open(comm, path, options, reader) result(r) bind(C, name='pumice_mpi_reader_open')
      import
      type(c_ptr), value :: comm, options
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: reader
      integer(c_int32_t) :: r
    end function
    subroutine pumice_mpi_reader_free(reader) bind(C, name='pumice_mpi_reader_free')
      import
      type(c_ptr), value :: reader
    end subroutine
    function pumice_mpi_reader_dtype(reader) result(r) bind(C, name='pumice_mpi_reader_dtype')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t) :: r
    end function
    function pumice_mpi_reader_rank(reader) result(r) bind(C, name='pumice_mpi_reader_rank')
      import
      type(c_ptr), value :: reader
      integer(c_size_t) :: r
    end function
    function c_reader_shape(reader) result(r) bind(C, name='pumice_mpi_reader_shape')
      import
      type(c_ptr), value :: reader
      type(c_ptr) :: r
    end function
    function c_reader_agree(reader, status) result(r) bind(C, name='pumice_mpi_reader_agree')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: status
      integer(c_int32_t) :: r
    end function
    function c_reader_read_all(reader, dtype, n_boxes, starts, counts, values) &
        result(r) bind(C, name='pumice_mpi_reader_read_all')
      import
      type(c_ptr), value :: reader
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: n_boxes
      integer(c_size_t), intent(in) :: starts(*), counts(*)
      type(c_ptr), intent(in) :: values(*)
      integer(c_int32_t) :: r
    end function
    function c_reader_read(reader, dtype, start, count, values) result(r) bind(C, name='pumice_mpi_reader_read')
      import
      type(c_ptr), value :: reader, values
      integer(c_int32_t), value :: dtype
      integer(c_size_t), intent(in) :: start(*), count(*)
      integer(c_int32_t) :: r
    end function
    function c_gather(comm, root, config, wire, dtype, n_values, values, n_out, out, transfer) &
        result(r) bind(C, name='pumice_mpi_gather')
      import
      type(c_ptr), value :: comm, config, values, out
      integer(c_int32_t), value :: root, wire, dtype
      integer(c_size_t), value :: n_values, n_out
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_all_reduce(comm, bound, e, is_total, algorithm, dtype, n_values, n_vectors, vectors, sum, summary) &
        result(r) bind(C, name='pumice_mpi_all_reduce')
      import
      type(c_ptr), value :: comm, sum
      integer(c_int32_t), value :: bound, is_total, algorithm, dtype
      real(c_double), value :: e
      integer(c_size_t), value :: n_values, n_vectors
      type(c_ptr), intent(in) :: vectors(*)
      type(pumice_mpi_sum), intent(out) :: summary
      integer(c_int32_t) :: r
    end function
    function c_all_gather(comm, config, wire, dtype, n_values, values, n_out, out, transfer) &
        result(r) bind(C, name='pumice_mpi_all_gather')
      import
      type(c_ptr), value :: comm, config, values, out
      integer(c_int32_t), value :: wire, dtype
      integer(c_size_t), value :: n_values, n_out
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_broadcast(comm, root, config, wire, dtype, n_values, values, transfer) &
        result(r) bind(C, name='pumice_mpi_broadcast')
      import
      type(c_ptr), value :: comm, config, values
      integer(c_int32_t), value :: root, wire, dtype
      integer(c_size_t), value :: n_values
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_scatter(comm, root, config, wire, dtype, n_values, values, n_out, out, transfer) &
        result(r) bind(C, name='pumice_mpi_scatter')
      import
      type(c_ptr), value :: comm, config, values, out
      integer(c_int32_t), value :: root, wire, dtype
      integer(c_size_t), value :: n_values, n_out
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_all_to_all(comm, config, wire, dtype, values, counts, out, out_counts, transfer) &
        result(r) bind(C, name='pumice_mpi_all_to_all')
      import
      type(c_ptr), value :: comm, config, values, out
      integer(c_int32_t), value :: wire, dtype
      integer(c_size_t), intent(in) :: counts(*), out_counts(*)
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_send(comm, to, tag, config, wire, dtype, n_values, values, transfer) &
        result(r) bind(C, name='pumice_mpi_send')
      import
      type(c_ptr), value :: comm, config, values
      integer(c_int32_t), value :: to, tag, wire, dtype
      integer(c_size_t), value :: n_values
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_receive(comm, from, tag, dtype, n_out, out, transfer) result(r) bind(C, name='pumice_mpi_receive')
      import
      type(c_ptr), value :: comm, out
      integer(c_int32_t), value :: from, tag, dtype
      integer(c_size_t), value :: n_out
      type(pumice_mpi_transfer), intent(out) :: transfer
      integer(c_int32_t) :: r
    end function
    function c_reduce_scatter(comm, bound, e, is_total, algorithm, dtype, n_values, n_vectors, vectors, first, n_out, &
        sum, summary) result(r) bind(C, name='pumice_mpi_reduce_scatter')
      import
      type(c_ptr), value :: comm, sum
      integer(c_int32_t), value :: bound, is_total, algorithm, dtype
      real(c_double), value :: e
      integer(c_size_t), value :: n_values, n_vectors, first, n_out
      type(c_ptr), intent(in) :: vectors(*)
      type(pumice_mpi_sum), intent(out) :: summary
      integer(c_int32_t) :: r
    end function
  end interface

  interface pumice_mpi_write
    module procedure write_f32, write_f64
  end interface
  interface pumice_mpi_iwrite
    module procedure iwrite_f32, iwrite_f64
  end interface
  interface pumice_mpi_writer_write
    module procedure writer_write_f32, writer_write_f64
  end interface
  interface pumice_mpi_reader_read_all
    module procedure read_all_f32, read_all_f64
  end interface
  interface pumice_mpi_reader_read
    module procedure read_f32, read_f64
  end interface
  interface pumice_mpi_gather
    module procedure gather_f32, gather_f64
  end interface
  interface pumice_mpi_all_gather
    module procedure all_gather_f32, all_gather_f64
  end interface
  interface pumice_mpi_broadcast
    module procedure broadcast_f32, broadcast_f64
  end interface
  interface pumice_mpi_scatter
    module procedure scatter_f32, scatter_f64
  end interface
  interface pumice_mpi_all_to_all
    module procedure all_to_all_f32, all_to_all_f64
  end interface
  interface pumice_mpi_send
    module procedure send_f32, send_f64
  end interface
  interface pumice_mpi_receive
    module procedure receive_f32, receive_f64
  end interface
  interface pumice_mpi_reduce_scatter
    module procedure reduce_scatter_f32, reduce_scatter_f64
  end interface
  interface pumice_mpi_all_reduce
    module procedure all_reduce_f32, all_reduce_f64
  end interface

contains

  !> Takes a duplicate of a communicator, an integer of `use mpi`; c_null_ptr if that is not possible.
  function pumice_mpi_comm_new(comm) result(handle)
    integer, intent(in) :: comm
    type(c_ptr) :: handle
    handle = c_comm_new(int(comm, c_int))
  end function

  !> Opens a file, together with all ranks; `options` are those to decode with, or c_null_ptr.
  function pumice_mpi_reader_open(comm, path, options, reader) result(status)
    type(c_ptr), intent(in) :: comm, options
    character(*), intent(in) :: path
    type(c_ptr), intent(out) :: reader
    integer(c_int32_t) :: status
    reader = c_null_ptr
    status = c_reader_open(comm, trim(path)//c_null_char, options, reader)
  end function

  !> Extents, fastest axis first.
  function pumice_mpi_reader_shape(reader) result(extents)
    type(c_ptr), intent(in) :: reader
    integer(c_size_t), allocatable :: extents(:)
    integer(c_size_t), pointer :: numbers(:)
    integer(c_size_t) :: n
    n = pumice_mpi_reader_rank(reader)
    allocate(extents(n))
    if (n == 0) return
    call c_f_pointer(c_reader_shape(reader), numbers, [n])
    extents = numbers(n:1:-1)
  end function

  !> Writes an array of these extents, of which this rank has boxes: box i starts at starts(:, i) and has counts(:, i)
  !> values along each axis, to the first of which values(i) points (c_loc). Without `wire`, they are compressed.
  function pumice_mpi_write_boxes(comm, path, config, dtype, extents, starts, counts, values, n_bytes, wire) &
      result(status)
    type(c_ptr), intent(in) :: comm, config
    character(*), intent(in) :: path
    integer(c_int32_t), intent(in) :: dtype
    integer(c_int32_t), intent(in), optional :: wire
    integer, intent(in) :: extents(:), starts(:, :), counts(:, :)
    type(c_ptr), intent(in) :: values(:)
    integer(c_int64_t), intent(out) :: n_bytes
    integer(c_int32_t) :: status, way
    n_bytes = 0
    way = pumice_mpi_wire_compressed
    if (present(wire)) way = wire
    status = pumice_mpi_agree(comm, refused(boxes_fault(size(extents), starts, counts, size(values))))
    if (status /= pumice_status_ok) return
    status = c_write(comm, trim(path)//c_null_char, config, way, dtype, size(extents, kind=c_size_t), c_order(extents), &
      size(values, kind=c_size_t), c_orders(starts - 1), c_orders(counts), values, n_bytes)
  end function

  !> Starts a file of rows of this shape, which are added along one axis more, the last.
  function pumice_mpi_writer_create(comm, path, config, dtype, row_shape, writer) result(status)
    type(c_ptr), intent(in) :: comm, config
    character(*), intent(in) :: path
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: row_shape(:)
    type(c_ptr), intent(out) :: writer
    integer(c_int32_t) :: status
    writer = c_null_ptr
    status = c_writer_create(comm, trim(path)//c_null_char, config, dtype, size(row_shape, kind=c_size_t), &
      c_order(row_shape), writer)
  end function

  !> Adds rows to a file that exists; `threads` are those of each rank, 0 for its share of the cores.
  function pumice_mpi_writer_append(comm, path, dtype, threads, writer) result(status)
    type(c_ptr), intent(in) :: comm
    character(*), intent(in) :: path
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: threads
    type(c_ptr), intent(out) :: writer
    integer(c_int32_t) :: status
    writer = c_null_ptr
    status = c_writer_append(comm, trim(path)//c_null_char, dtype, int(threads, c_size_t), writer)
  end function

  !> Whether pumice_mpi_writing_wait has nothing to wait for but other ranks.
  function pumice_mpi_writing_is_done(writing) result(is_done)
    type(c_ptr), intent(in) :: writing
    logical :: is_done
    is_done = c_writing_is_done(writing) /= 0
  end function

  !> Reads boxes, together with all ranks, as pumice_mpi_write_boxes has them.
  function pumice_mpi_read_boxes(reader, dtype, starts, counts, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer(c_int32_t), intent(in) :: dtype
    integer, intent(in) :: starts(:, :), counts(:, :)
    type(c_ptr), intent(in) :: values(:)
    integer(c_int32_t) :: status
    integer :: n_axes
    n_axes = int(pumice_mpi_reader_rank(reader))
    status = c_reader_agree(reader, refused(boxes_fault(n_axes, starts, counts, size(values))))
    if (status /= pumice_status_ok) return
    status = c_reader_read_all(reader, dtype, size(values, kind=c_size_t), c_orders(starts - 1), c_orders(counts), values)
  end function

  ! The same for each type of values.

  !> Writes an array of these extents, of which this rank has the box that starts at `start`; positions start at 1. It may
  !> have no values.
  function write_f32(comm, path, config, extents, start, values, n_bytes, wire) result(status)
    type(c_ptr), intent(in) :: comm, config
    character(*), intent(in) :: path
    integer, intent(in) :: extents(:), start(:)
    real(c_float), intent(in), contiguous, target :: values(..)
    integer(c_int64_t), intent(out) :: n_bytes
    integer(c_int32_t), intent(in), optional :: wire
    integer(c_int32_t) :: status
    status = pumice_mpi_write_boxes(comm, path, config, pumice_dtype_f32, extents, reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), [c_loc(values)], n_bytes, wire)
  end function

  !> As pumice_mpi_write, while the program goes on; pumice_mpi_writing_wait ends it.
  function iwrite_f32(comm, path, config, extents, start, values, writing) result(status)
    type(c_ptr), intent(in) :: comm, config
    character(*), intent(in) :: path
    integer, intent(in) :: extents(:), start(:)
    real(c_float), intent(in), contiguous, target :: values(..)
    type(c_ptr), intent(out) :: writing
    integer(c_int32_t) :: status
    writing = c_null_ptr
    status = pumice_mpi_agree(comm, refused(boxes_fault(size(extents), reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), 1)))
    if (status /= pumice_status_ok) return
    status = c_iwrite(comm, trim(path)//c_null_char, config, pumice_dtype_f32, size(extents, kind=c_size_t), &
      c_order(extents), 1_c_size_t, c_order(start - 1), c_order(shape(values)), [c_loc(values)], writing)
  end function

  !> Adds `n_rows` rows along the last axis, of which this rank has the box that starts at `start`. Rows and boxes have as
  !> many axes as the array; the first of these rows has position 1.
  function writer_write_f32(writer, n_rows, start, values) result(status)
    type(c_ptr), intent(in) :: writer
    integer, intent(in) :: n_rows, start(:)
    real(c_float), intent(in), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    integer(c_size_t) :: from(rank(values))
    ! A position that no box has is refused by all ranks together.
    from = huge(1_c_size_t)
    if (size(start) == rank(values)) then
      if (all(start > 0)) from = c_order(start - 1)
    end if
    status = c_writer_write(writer, int(n_rows, c_size_t), int(rank(values), c_size_t), 1_c_size_t, from, &
      c_order(shape(values)), [c_loc(values)])
  end function

  !> Reads the box that starts at `start` to `values`, together with all ranks; positions start at 1.
  function read_all_f32(reader, start, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: start(:)
    real(c_float), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = pumice_mpi_read_boxes(reader, pumice_dtype_f32, reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), [c_loc(values)])
  end function

  !> Reads the box that starts at `start` to `values`, without the other ranks.
  function read_f32(reader, start, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: start(:)
    real(c_float), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = refused(boxes_fault(int(pumice_mpi_reader_rank(reader)), reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), 1))
    if (status /= pumice_status_ok) return
    status = c_reader_read(reader, pumice_dtype_f32, c_order(start - 1), c_order(shape(values)), c_loc(values))
  end function

  !> Collects the values of each rank on rank `root`, to `out`, which elsewhere may have size 0.
  function gather_f32(comm, root, config, wire, values, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: root
    integer(c_int32_t), intent(in) :: wire
    real(c_float), intent(in), contiguous, target :: values(..)
    real(c_float), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_gather(comm, int(root, c_int32_t), config, wire, pumice_dtype_f32, size(values, kind=c_size_t), &
      c_loc(values), size(out, kind=c_size_t), c_loc(out), transfer)
  end function

  !> As pumice_mpi_gather, but all ranks get all values: the same bits everywhere.
  function all_gather_f32(comm, config, wire, values, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer(c_int32_t), intent(in) :: wire
    real(c_float), intent(in), contiguous, target :: values(..)
    real(c_float), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_all_gather(comm, config, wire, pumice_dtype_f32, size(values, kind=c_size_t), c_loc(values), &
      size(out, kind=c_size_t), c_loc(out), transfer)
  end function

  !> Gives all ranks the values of rank `root`, in place: the same bits everywhere, also on `root`.
  function broadcast_f32(comm, root, config, wire, values, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: root
    integer(c_int32_t), intent(in) :: wire
    real(c_float), intent(inout), contiguous, target :: values(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_broadcast(comm, int(root, c_int32_t), config, wire, pumice_dtype_f32, size(values, kind=c_size_t), &
      c_loc(values), transfer)
  end function

  !> Deals out the values of rank `root`, to each as many as its `out` has; elsewhere, `values` may have size 0.
  function scatter_f32(comm, root, config, wire, values, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: root
    integer(c_int32_t), intent(in) :: wire
    real(c_float), intent(in), contiguous, target :: values(..)
    real(c_float), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_scatter(comm, int(root, c_int32_t), config, wire, pumice_dtype_f32, size(values, kind=c_size_t), &
      c_loc(values), size(out, kind=c_size_t), c_loc(out), transfer)
  end function

  !> Each rank sends counts(i) of its values to rank i - 1, and gets out_counts(i) of it. There is a count for each rank.
  function all_to_all_f32(comm, config, wire, values, counts, out, out_counts, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer(c_int32_t), intent(in) :: wire
    integer, intent(in) :: counts(:), out_counts(:)
    real(c_float), intent(in), contiguous, target :: values(..)
    real(c_float), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (any(counts < 0) .or. any(out_counts < 0)) then
      status = refused('a count is negative')
    else if (sum(int(counts, c_size_t)) /= size(values, kind=c_size_t) .or. &
        sum(int(out_counts, c_size_t)) /= size(out, kind=c_size_t)) then
      status = refused('counts must add up to the size of values, and out_counts to that of out')
    end if
    status = pumice_mpi_agree(comm, status)
    if (status /= pumice_status_ok) return
    status = c_all_to_all(comm, config, wire, pumice_dtype_f32, c_loc(values), int(counts, c_size_t), c_loc(out), &
      int(out_counts, c_size_t), transfer)
  end function

  !> Sends values to rank `to`, which calls pumice_mpi_receive with the same tag.
  function send_f32(comm, to, tag, config, wire, values, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: to, tag
    integer(c_int32_t), intent(in) :: wire
    real(c_float), intent(in), contiguous, target :: values(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_send(comm, int(to, c_int32_t), int(tag, c_int32_t), config, wire, pumice_dtype_f32, &
      size(values, kind=c_size_t), c_loc(values), transfer)
  end function

  !> Receives what rank `from` sends with this tag: as many values, of the same type.
  function receive_f32(comm, from, tag, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm
    integer, intent(in) :: from, tag
    real(c_float), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_receive(comm, int(from, c_int32_t), int(tag, c_int32_t), pumice_dtype_f32, size(out, kind=c_size_t), &
      c_loc(out), transfer)
  end function

  !> As pumice_mpi_all_reduce, but this rank gets only the part of the sum that begins at position `first`, to `total`.
  function reduce_scatter_f32(comm, bound, e, is_total, algorithm, values, first, total, summary) result(status)
    type(c_ptr), intent(in) :: comm
    integer(c_int32_t), intent(in) :: bound, algorithm
    real(c_double), intent(in) :: e
    logical, intent(in) :: is_total
    real(c_float), intent(in), contiguous, target :: values(..)
    integer, intent(in) :: first
    real(c_float), intent(inout), contiguous, target :: total(..)
    type(pumice_mpi_sum), intent(out) :: summary
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (first < 1) status = refused('a part of the sum starts before position 1')
    status = pumice_mpi_agree(comm, status)
    if (status /= pumice_status_ok) return
    status = c_reduce_scatter(comm, bound, e, merge(1_c_int32_t, 0_c_int32_t, is_total), algorithm, pumice_dtype_f32, &
      size(values, kind=c_size_t), 1_c_size_t, [c_loc(values)], int(first - 1, c_size_t), size(total, kind=c_size_t), &
      c_loc(total), summary)
  end function

  !> Adds the values of all ranks; `bound` with the number `e` is that of each rank's values, or, if `is_total`, of the sum.
  function all_reduce_f32(comm, bound, e, is_total, algorithm, values, sum, summary) result(status)
    type(c_ptr), intent(in) :: comm
    integer(c_int32_t), intent(in) :: bound, algorithm
    real(c_double), intent(in) :: e
    logical, intent(in) :: is_total
    real(c_float), intent(in), contiguous, target :: values(..)
    real(c_float), intent(inout), contiguous, target :: sum(..)
    type(pumice_mpi_sum), intent(out) :: summary
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (size(sum) /= size(values)) status = refused('the sum must have as many values as each rank adds')
    status = pumice_mpi_agree(comm, status)
    if (status /= pumice_status_ok) return
    status = c_all_reduce(comm, bound, e, merge(1_c_int32_t, 0_c_int32_t, is_total), algorithm, pumice_dtype_f32, &
      size(values, kind=c_size_t), 1_c_size_t, [c_loc(values)], c_loc(sum), summary)
  end function

  ! The same for each type of values.

  !> Writes an array of these extents, of which this rank has the box that starts at `start`; positions start at 1. It may
  !> have no values.
  function write_f64(comm, path, config, extents, start, values, n_bytes, wire) result(status)
    type(c_ptr), intent(in) :: comm, config
    character(*), intent(in) :: path
    integer, intent(in) :: extents(:), start(:)
    real(c_double), intent(in), contiguous, target :: values(..)
    integer(c_int64_t), intent(out) :: n_bytes
    integer(c_int32_t), intent(in), optional :: wire
    integer(c_int32_t) :: status
    status = pumice_mpi_write_boxes(comm, path, config, pumice_dtype_f64, extents, reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), [c_loc(values)], n_bytes, wire)
  end function

  !> As pumice_mpi_write, while the program goes on; pumice_mpi_writing_wait ends it.
  function iwrite_f64(comm, path, config, extents, start, values, writing) result(status)
    type(c_ptr), intent(in) :: comm, config
    character(*), intent(in) :: path
    integer, intent(in) :: extents(:), start(:)
    real(c_double), intent(in), contiguous, target :: values(..)
    type(c_ptr), intent(out) :: writing
    integer(c_int32_t) :: status
    writing = c_null_ptr
    status = pumice_mpi_agree(comm, refused(boxes_fault(size(extents), reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), 1)))
    if (status /= pumice_status_ok) return
    status = c_iwrite(comm, trim(path)//c_null_char, config, pumice_dtype_f64, size(extents, kind=c_size_t), &
      c_order(extents), 1_c_size_t, c_order(start - 1), c_order(shape(values)), [c_loc(values)], writing)
  end function

  !> Adds `n_rows` rows along the last axis, of which this rank has the box that starts at `start`. Rows and boxes have as
  !> many axes as the array; the first of these rows has position 1.
  function writer_write_f64(writer, n_rows, start, values) result(status)
    type(c_ptr), intent(in) :: writer
    integer, intent(in) :: n_rows, start(:)
    real(c_double), intent(in), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    integer(c_size_t) :: from(rank(values))
    ! A position that no box has is refused by all ranks together.
    from = huge(1_c_size_t)
    if (size(start) == rank(values)) then
      if (all(start > 0)) from = c_order(start - 1)
    end if
    status = c_writer_write(writer, int(n_rows, c_size_t), int(rank(values), c_size_t), 1_c_size_t, from, &
      c_order(shape(values)), [c_loc(values)])
  end function

  !> Reads the box that starts at `start` to `values`, together with all ranks; positions start at 1.
  function read_all_f64(reader, start, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: start(:)
    real(c_double), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = pumice_mpi_read_boxes(reader, pumice_dtype_f64, reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), [c_loc(values)])
  end function

  !> Reads the box that starts at `start` to `values`, without the other ranks.
  function read_f64(reader, start, values) result(status)
    type(c_ptr), intent(in) :: reader
    integer, intent(in) :: start(:)
    real(c_double), intent(inout), contiguous, target :: values(..)
    integer(c_int32_t) :: status
    status = refused(boxes_fault(int(pumice_mpi_reader_rank(reader)), reshape(start, [size(start), 1]), &
      reshape(shape(values), [rank(values), 1]), 1))
    if (status /= pumice_status_ok) return
    status = c_reader_read(reader, pumice_dtype_f64, c_order(start - 1), c_order(shape(values)), c_loc(values))
  end function

  !> Collects the values of each rank on rank `root`, to `out`, which elsewhere may have size 0.
  function gather_f64(comm, root, config, wire, values, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: root
    integer(c_int32_t), intent(in) :: wire
    real(c_double), intent(in), contiguous, target :: values(..)
    real(c_double), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_gather(comm, int(root, c_int32_t), config, wire, pumice_dtype_f64, size(values, kind=c_size_t), &
      c_loc(values), size(out, kind=c_size_t), c_loc(out), transfer)
  end function

  !> As pumice_mpi_gather, but all ranks get all values: the same bits everywhere.
  function all_gather_f64(comm, config, wire, values, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer(c_int32_t), intent(in) :: wire
    real(c_double), intent(in), contiguous, target :: values(..)
    real(c_double), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_all_gather(comm, config, wire, pumice_dtype_f64, size(values, kind=c_size_t), c_loc(values), &
      size(out, kind=c_size_t), c_loc(out), transfer)
  end function

  !> Gives all ranks the values of rank `root`, in place: the same bits everywhere, also on `root`.
  function broadcast_f64(comm, root, config, wire, values, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: root
    integer(c_int32_t), intent(in) :: wire
    real(c_double), intent(inout), contiguous, target :: values(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_broadcast(comm, int(root, c_int32_t), config, wire, pumice_dtype_f64, size(values, kind=c_size_t), &
      c_loc(values), transfer)
  end function

  !> Deals out the values of rank `root`, to each as many as its `out` has; elsewhere, `values` may have size 0.
  function scatter_f64(comm, root, config, wire, values, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: root
    integer(c_int32_t), intent(in) :: wire
    real(c_double), intent(in), contiguous, target :: values(..)
    real(c_double), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_scatter(comm, int(root, c_int32_t), config, wire, pumice_dtype_f64, size(values, kind=c_size_t), &
      c_loc(values), size(out, kind=c_size_t), c_loc(out), transfer)
  end function

  !> Each rank sends counts(i) of its values to rank i - 1, and gets out_counts(i) of it. There is a count for each rank.
  function all_to_all_f64(comm, config, wire, values, counts, out, out_counts, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer(c_int32_t), intent(in) :: wire
    integer, intent(in) :: counts(:), out_counts(:)
    real(c_double), intent(in), contiguous, target :: values(..)
    real(c_double), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (any(counts < 0) .or. any(out_counts < 0)) then
      status = refused('a count is negative')
    else if (sum(int(counts, c_size_t)) /= size(values, kind=c_size_t) .or. &
        sum(int(out_counts, c_size_t)) /= size(out, kind=c_size_t)) then
      status = refused('counts must add up to the size of values, and out_counts to that of out')
    end if
    status = pumice_mpi_agree(comm, status)
    if (status /= pumice_status_ok) return
    status = c_all_to_all(comm, config, wire, pumice_dtype_f64, c_loc(values), int(counts, c_size_t), c_loc(out), &
      int(out_counts, c_size_t), transfer)
  end function

  !> Sends values to rank `to`, which calls pumice_mpi_receive with the same tag.
  function send_f64(comm, to, tag, config, wire, values, transfer) result(status)
    type(c_ptr), intent(in) :: comm, config
    integer, intent(in) :: to, tag
    integer(c_int32_t), intent(in) :: wire
    real(c_double), intent(in), contiguous, target :: values(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_send(comm, int(to, c_int32_t), int(tag, c_int32_t), config, wire, pumice_dtype_f64, &
      size(values, kind=c_size_t), c_loc(values), transfer)
  end function

  !> Receives what rank `from` sends with this tag: as many values, of the same type.
  function receive_f64(comm, from, tag, out, transfer) result(status)
    type(c_ptr), intent(in) :: comm
    integer, intent(in) :: from, tag
    real(c_double), intent(inout), contiguous, target :: out(..)
    type(pumice_mpi_transfer), intent(out) :: transfer
    integer(c_int32_t) :: status
    status = c_receive(comm, int(from, c_int32_t), int(tag, c_int32_t), pumice_dtype_f64, size(out, kind=c_size_t), &
      c_loc(out), transfer)
  end function

  !> As pumice_mpi_all_reduce, but this rank gets only the part of the sum that begins at position `first`, to `total`.
  function reduce_scatter_f64(comm, bound, e, is_total, algorithm, values, first, total, summary) result(status)
    type(c_ptr), intent(in) :: comm
    integer(c_int32_t), intent(in) :: bound, algorithm
    real(c_double), intent(in) :: e
    logical, intent(in) :: is_total
    real(c_double), intent(in), contiguous, target :: values(..)
    integer, intent(in) :: first
    real(c_double), intent(inout), contiguous, target :: total(..)
    type(pumice_mpi_sum), intent(out) :: summary
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (first < 1) status = refused('a part of the sum starts before position 1')
    status = pumice_mpi_agree(comm, status)
    if (status /= pumice_status_ok) return
    status = c_reduce_scatter(comm, bound, e, merge(1_c_int32_t, 0_c_int32_t, is_total), algorithm, pumice_dtype_f64, &
      size(values, kind=c_size_t), 1_c_size_t, [c_loc(values)], int(first - 1, c_size_t), size(total, kind=c_size_t), &
      c_loc(total), summary)
  end function

  !> Adds the values of all ranks; `bound` with the number `e` is that of each rank's values, or, if `is_total`, of the sum.
  function all_reduce_f64(comm, bound, e, is_total, algorithm, values, sum, summary) result(status)
    type(c_ptr), intent(in) :: comm
    integer(c_int32_t), intent(in) :: bound, algorithm
    real(c_double), intent(in) :: e
    logical, intent(in) :: is_total
    real(c_double), intent(in), contiguous, target :: values(..)
    real(c_double), intent(inout), contiguous, target :: sum(..)
    type(pumice_mpi_sum), intent(out) :: summary
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (size(sum) /= size(values)) status = refused('the sum must have as many values as each rank adds')
    status = pumice_mpi_agree(comm, status)
    if (status /= pumice_status_ok) return
    status = c_all_reduce(comm, bound, e, merge(1_c_int32_t, 0_c_int32_t, is_total), algorithm, pumice_dtype_f64, &
      size(values, kind=c_size_t), 1_c_size_t, [c_loc(values)], c_loc(sum), summary)
  end function

  !> What is wrong with boxes of an array: '' if nothing. What the library can say in the order of Fortran it leaves to it.
  function boxes_fault(n_axes, starts, counts, n_values) result(message)
    integer, intent(in) :: n_axes, starts(:, :), counts(:, :), n_values
    character(:), allocatable :: message
    message = ''
    if (n_values == 0) return
    if (size(starts, 1) /= n_axes .or. size(counts, 1) /= n_axes) then
      message = 'starts and counts must have one number for each axis of the array'
    else if (size(starts, 2) /= n_values .or. size(counts, 2) /= n_values) then
      message = 'starts, counts and values must have as many boxes as each other'
    else if (any(starts < 1) .or. any(counts < 0)) then
      message = 'a box starts before position 1, or has a negative extent'
    end if
  end function

  !> The status for such a message, which pumice_last_error() then gives.
  function refused(message) result(status)
    character(*), intent(in) :: message
    integer(c_int32_t) :: status
    status = pumice_status_ok
    if (message /= '') status = c_refuse(message//c_null_char)
  end function

  !> Extents or positions in the order of C.
  pure function c_order(numbers) result(reversed)
    integer, intent(in) :: numbers(:)
    integer(c_size_t) :: reversed(size(numbers))
    reversed = int(numbers(size(numbers):1:-1), c_size_t)
  end function

  !> Those of several boxes, one after the other.
  pure function c_orders(numbers) result(reversed)
    integer, intent(in) :: numbers(:, :)
    integer(c_size_t) :: reversed(size(numbers))
    reversed = int(reshape(numbers(size(numbers, 1):1:-1, :), [size(numbers)]), c_size_t)
  end function

end module pumice_mpi
