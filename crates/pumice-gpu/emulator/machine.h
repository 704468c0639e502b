// Shared by the emulator's files: the state of a launch.
#pragma once

#include "emulator.h"

#include <sys/mman.h>

#include <memory>
#include <vector>

#if defined(__x86_64__) && defined(__linux__)
#define PUMICE_EMULATOR_OWN_SWITCH
#else
#include <ucontext.h>
#endif

// Tells Valgrind of the stacks, so that it finds a kernel's accesses out of bounds; without Valgrind, this does nothing.
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(low, high) 0
#define VALGRIND_STACK_DEREGISTER(id)
#endif

namespace pumice_emulator {

constexpr uint32_t LANES = 32;
constexpr size_t STACK_BYTES = 64 * 1024;
constexpr size_t GUARD_BYTES = 4096;
// The most shared memory that CUDA allows a kernel to declare statically.
constexpr size_t MAX_SHARED_BYTES = 48 * 1024;

// The context of a coroutine.
#ifdef PUMICE_EMULATOR_OWN_SWITCH
struct Context {
    void* stack;
};
#else
using Context = ucontext_t;
#endif

// The stacks of one block, reused by later launches.
class Stacks {
public:
    Stacks() = default;
    Stacks(const Stacks&) = delete;
    ~Stacks() { release(); }

    // Returns whether the memory could be allocated.
    bool reserve(uint32_t n_stacks) {
        if (n_stacks <= n_stacks_) return true;
        release();
        const size_t bytes = n_stacks * STACK_BYTES;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return false;
        memory_ = static_cast<char*>(memory);
        for (; n_stacks_ < n_stacks; n_stacks_++) {
            // Best effort: if the system has no more mappings, overflows are not detected.
            mprotect(memory_ + n_stacks_ * STACK_BYTES, GUARD_BYTES, PROT_NONE);
            [[maybe_unused]] char* last = memory_ + (n_stacks_ + 1) * STACK_BYTES - 1;
            valgrind_ids_.push_back(VALGRIND_STACK_REGISTER(stack(n_stacks_), last));
        }
        return true;
    }

    char* stack(uint32_t index) { return memory_ + index * STACK_BYTES + GUARD_BYTES; }

    // Stacks that all end at the same offset in a page would compete for the same few cache lines.
    static size_t stack_bytes(uint32_t index) { return STACK_BYTES - GUARD_BYTES - index % LANES * 128; }

private:
    void release() {
        for ([[maybe_unused]] unsigned id : valgrind_ids_) VALGRIND_STACK_DEREGISTER(id);
        valgrind_ids_.clear();
        if (memory_ != nullptr) munmap(memory_, n_stacks_ * STACK_BYTES);
        memory_ = nullptr;
        n_stacks_ = 0;
    }

    char* memory_ = nullptr;
    uint32_t n_stacks_ = 0;
    std::vector<unsigned> valgrind_ids_;
};

struct Warp;
struct Block;

struct Lane : Position {
    Warp* warp;
    uint32_t index;

    uint32_t bit() const { return 1u << index; }
};

// An asynchronous copy that is not complete yet.
struct Copy {
    void* to;
    const void* from;
    size_t n_bytes;
    uint32_t batch;
    const void* code;
};

struct Warp {
    Block* block;
    uint32_t index;
    bool queued;  // whether the scheduler's list holds it

    // Sets of lanes. A live lane is in exactly one of ready, waiting and at_barrier; turn is the part
    // of ready that still runs before the warp yields to the scheduler.
    uint32_t existing, live, ready, turn, waiting, at_barrier;

    // Number of finished collectives; lanes are not ordered between two of them.
    uint32_t n_collectives;

    // The order in which lanes run: upwards or downwards from a lane, drawn again for every turn.
    uint32_t first_lane;
    bool descending;

    // Input and result of the collective of each waiting lane.
    Operation operation[LANES];
    uint32_t mask[LANES];
    uint32_t source[LANES];
    uint64_t value[LANES];
    uint64_t result[LANES];

    std::vector<Copy> copies[LANES];
    uint32_t n_batches[LANES];

    Context context[LANES];
    Lane lanes[LANES];

    uint32_t take_next_of_turn() {
        const uint32_t r = first_lane;
        const uint32_t rotated = turn >> r | turn << (-r & 31);
        const uint32_t lane = ((descending ? 31 - __builtin_clz(rotated) : __builtin_ctz(rotated)) + r) & 31;
        turn &= ~(1u << lane);
        return lane;
    }
};

struct SharedObject {
    const void* key;
    char* storage;
};

// The lanes that last wrote and read a byte of shared memory since the block's last barrier.
struct Accesses {
    uint32_t written_after, read_after;  // n_barriers at the time; 0 for never
    uint32_t n_collectives_before_write, n_collectives_before_read;
    uint16_t writer, reader;
    uint32_t reading_warps;
};

struct Block {
    uint32_t n_barriers;  // that were opened, plus 1
    uint32_t n_live;
    uint32_t n_warps;

    uint32_t n_arrived;  // lanes at the barrier
    uint32_t n_predicates;
    Operation barrier_operation;
    int barrier_result;

    size_t shared_bytes;
    std::vector<SharedObject> shared_objects;
    std::vector<Accesses> accesses;
    alignas(128) char shared[MAX_SHARED_BYTES];

    std::vector<Warp> warps;
    Stacks stacks;
};

// A pending write to bytes that another lane has written as well.
struct Rewrite {
    size_t offset, n_bytes;  // 0 bytes if there is none
    uint32_t other;
    const void* code;
    char bytes[16];
};

// The state of one OS thread that runs launches, one after the other.
struct Machine {
    KernelCall kernel;
    void** arguments;
    dim3 grid_dim, block_dim;

    Context scheduler;
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<Warp*> runnable;
    std::vector<uint32_t> block_order;
    size_t n_started;

    const PumiceEmulatorBuffer* buffers;
    size_t n_buffers;
    const PumiceEmulatorBuffer* last_buffer;  // that was found; most accesses are near the one before

    Rewrite rewrite;
    uint64_t random_state;
    uint64_t n_spins;
    bool failed;
    char message[512];

    uint64_t random() {  // xorshift64*
        random_state ^= random_state >> 12;
        random_state ^= random_state << 25;
        random_state ^= random_state >> 27;
        return random_state * 0x2545f4914f6cdd1du;
    }
    uint32_t random_below(uint32_t n) { return uint32_t((random() >> 32) * n >> 32); }
    bool one_in_eight() { return random() >> 61 == 0; }

    const char* fail(const char* format, ...) __attribute__((format(printf, 2, 3)));

    const char* run();
    void draw_block_order();
    void start_block(Block& block);
    void start_warp(Block& block, uint32_t index);
    void run_turn(Warp& warp);
    void draw_lane_order(Warp& warp);
    void enqueue(Warp& warp);
    void release_barrier(Block& block);
    void report_deadlock(const Warp& warp);
};

extern __thread Machine* machine;

inline const Lane& this_lane() { return *static_cast<const Lane*>(here); }

// Leaves the running lane without unwinding its stack, and ends the launch.
[[noreturn]] void abandon_launch();

// Called at the next check after such a write: it is an error if the write has changed the bytes.
void settle_rewrite();

}  // namespace pumice_emulator
