// Checks of memory accesses: data races in shared memory, accesses outside of buffers of device memory, and asynchronous copies.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "machine.h"

namespace pumice_emulator {

namespace {

// Ends the launch because an access of the running lane races with one of another lane.
[[noreturn]] void report_race(size_t offset, const char* access, uint32_t other, const char* other_access,
                              const void* code) {
    Dl_info file = {};
    const bool is_known = dladdr(code, &file) != 0;
    machine->fail("block %u: thread %u %s byte %zu of shared memory, which thread %u %s with no barrier between; the code is at "
                  "offset %#zx of %s",
                  here->block_index.x, here->thread_index.x, access, offset, other, other_access,
                  size_t(static_cast<const char*>(code) - static_cast<const char*>(file.dli_fbase)),
                  is_known ? file.dli_fname : "memory");
    abandon_launch();
}

}  // namespace

void settle_rewrite() {
    Rewrite& rewrite = machine->rewrite;
    if (rewrite.n_bytes == 0) return;
    const size_t n_bytes = std::exchange(rewrite.n_bytes, 0);
    const char* shared = this_lane().warp->block->shared;
    if (std::memcmp(shared + rewrite.offset, rewrite.bytes, n_bytes) == 0) return;
    report_race(rewrite.offset, "writes", rewrite.other, "writes, too,", rewrite.code);
}

void check_device_memory(const void* at, size_t n_bytes) {
    const uint64_t first = reinterpret_cast<uint64_t>(at);
    const auto holds = [=](const PumiceEmulatorBuffer& buffer) {
        return first >= buffer.start && first <= buffer.end && n_bytes <= buffer.end - first;
    };
    Machine& m = *machine;
    if (m.last_buffer != nullptr && holds(*m.last_buffer)) return;
    const auto is_before = [](uint64_t address, const PumiceEmulatorBuffer& buffer) {
        return address < buffer.start - PUMICE_EMULATOR_GUARD_BYTES;
    };
    const PumiceEmulatorBuffer* end = m.buffers + m.n_buffers;
    const PumiceEmulatorBuffer* next = std::upper_bound(m.buffers, end, first, is_before);
    // An address far from all buffers is in the lane's own memory.
    if (next == m.buffers || first >= next[-1].end + PUMICE_EMULATOR_GUARD_BYTES) return;
    m.last_buffer = next - 1;
    if (holds(next[-1])) return;
    m.fail("block %u: thread %u accesses %zu bytes at offset %lld of a buffer of %llu bytes", here->block_index.x,
           here->thread_index.x, n_bytes, (long long)(first - next[-1].start),
           (unsigned long long)(next[-1].end - next[-1].start));
    abandon_launch();
}

namespace {

// Finds data races in shared memory: accesses by lanes of two warps with no barrier between, or of one warp with no collective.
inline void note_access(const void* at, size_t n_bytes, bool is_write, const void* code) {
    if (here == nullptr) return;
    settle_rewrite();
    const Lane& lane = this_lane();
    const Warp& warp = *lane.warp;
    Block& block = *warp.block;
    const size_t first = static_cast<const char*>(at) - block.shared;
    if (first >= block.shared_bytes) return check_device_memory(at, n_bytes);
    if (n_bytes > block.shared_bytes - first) {
        machine->fail("block %u: thread %u accesses bytes beyond the end of shared memory", here->block_index.x,
                      here->thread_index.x);
        abandon_launch();
    }
    const uint32_t thread = lane.thread_index.x, now = block.n_barriers, own_warp = 1u << warp.index;
    const auto has_no_order = [&](uint32_t other, uint32_t n_collectives) {
        return other != thread && (other / LANES != warp.index || n_collectives == warp.n_collectives);
    };
    for (size_t offset = first; offset < first + n_bytes; offset++) {
        Accesses& byte = block.accesses[offset];
        const bool was_read = byte.read_after == now;
        if (byte.written_after == now && has_no_order(byte.writer, byte.n_collectives_before_write)) {
            if (!is_write) report_race(offset, "reads", byte.writer, "writes", code);
            // Two lanes may write the same value, as for flags.
            Rewrite& rewrite = machine->rewrite;
            if (n_bytes > sizeof rewrite.bytes) report_race(offset, "writes", byte.writer, "writes, too,", code);
            rewrite = {first, n_bytes, byte.writer, code, {}};
            std::memcpy(rewrite.bytes, block.shared + first, n_bytes);
        }
        if (!is_write) {
            byte.reading_warps = (was_read ? byte.reading_warps : 0) | own_warp;
            byte.read_after = now;
            byte.reader = uint16_t(thread);
            byte.n_collectives_before_read = warp.n_collectives;
            continue;
        }
        if (was_read && (byte.reading_warps & ~own_warp) != 0) {
            const uint32_t other = __builtin_ctz(byte.reading_warps & ~own_warp) * LANES;
            report_race(offset, "writes", other, "or one of its warp reads", code);
        }
        if (was_read && has_no_order(byte.reader, byte.n_collectives_before_read)) {
            report_race(offset, "writes", byte.reader, "reads", code);
        }
        byte.written_after = now;
        byte.writer = uint16_t(thread);
        byte.n_collectives_before_write = warp.n_collectives;
    }
}

// Completes copies of the running lane, up to those of a batch.
void land_copies(uint64_t end_batch) {
    const Lane& lane = this_lane();
    std::vector<Copy>& copies = lane.warp->copies[lane.index];
    size_t n = 0;
    for (; n < copies.size() && copies[n].batch < end_batch; n++) {
        const Copy& copy = copies[n];
        check_device_memory(copy.from, copy.n_bytes);
        note_access(copy.to, copy.n_bytes, true, copy.code);
        std::memcpy(copy.to, copy.from, copy.n_bytes);
    }
    copies.erase(copies.begin(), copies.begin() + std::ptrdiff_t(n));
}

}  // namespace

void check_alignment(const void* at, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(at) % bytes == 0) return;
    const Lane& lane = this_lane();
    machine->fail("block %u: thread %u accesses %zu bytes at an address that is not a multiple of that", lane.block_index.x,
                  lane.thread_index.x, bytes);
    abandon_launch();
}

void copy_later(void* to, const void* from, size_t bytes) {
    check_alignment(to, bytes);
    check_alignment(from, bytes);
    const Lane& lane = this_lane();
    Warp& warp = *lane.warp;
    warp.copies[lane.index].push_back({to, from, bytes, warp.n_batches[lane.index], __builtin_return_address(0)});
}

void end_batch() {
    const Lane& lane = this_lane();
    lane.warp->n_batches[lane.index]++;
}

void await_batches(uint32_t n_left) {
    const Lane& lane = this_lane();
    const uint32_t n_batches = lane.warp->n_batches[lane.index];
    land_copies(n_batches - min(n_left, n_batches));
}

void await_copies() { land_copies(UINT64_MAX); }

}  // namespace pumice_emulator

// The functions that the compiler calls before each memory access (-fsanitize=thread). They replace its own library, which knows
// threads of the system, not lanes.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define PUMICE_EMULATOR_ACCESS(name, n_bytes, is_write) \
    void name(void* at) { pumice_emulator::note_access(at, n_bytes, is_write, __builtin_return_address(0)); }
#define PUMICE_EMULATOR_ACCESSES(n)                              \
    PUMICE_EMULATOR_ACCESS(__tsan_read##n, n, false)             \
    PUMICE_EMULATOR_ACCESS(__tsan_write##n, n, true)             \
    PUMICE_EMULATOR_ACCESS(__tsan_unaligned_read##n, n, false)   \
    PUMICE_EMULATOR_ACCESS(__tsan_unaligned_write##n, n, true)
PUMICE_EMULATOR_ACCESSES(1)
PUMICE_EMULATOR_ACCESSES(2)
PUMICE_EMULATOR_ACCESSES(4)
PUMICE_EMULATOR_ACCESSES(8)
PUMICE_EMULATOR_ACCESSES(16)
#undef PUMICE_EMULATOR_ACCESSES
#undef PUMICE_EMULATOR_ACCESS
void __tsan_read_range(void* at, size_t n_bytes) {
    pumice_emulator::note_access(at, n_bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t n_bytes) {
    pumice_emulator::note_access(at, n_bytes, true, __builtin_return_address(0));
}
}
