// The scheduler behind emulator.h: coroutines, collectives, barriers, and the order in which they run.
#include <cstdarg>
#include <cstdio>
#include <map>
#include <string>

#include "machine.h"

namespace pumice_emulator {

__thread const Position* here = nullptr;
__thread Machine* machine = nullptr;

namespace {

constexpr uint32_t MAX_THREADS = 1024;
constexpr uint64_t MAX_SPINS = 20'000'000;
constexpr uint64_t POISON = 0xa5a5a5a5a5a5a5a5u;

// Coroutine contexts.

#ifdef PUMICE_EMULATOR_OWN_SWITCH

// Saves only the registers that a callee must preserve in the System V ABI. It ends in `ret` because lanes
// mostly leave and resume at the same call, so that the processor predicts the return address.
asm(R"(
    .text
    .p2align 4
    .globl pumice_emulator_switch
    .hidden pumice_emulator_switch
    .type pumice_emulator_switch, @function
pumice_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size pumice_emulator_switch, . - pumice_emulator_switch
)");
extern "C" void pumice_emulator_switch(void** saved_stack, void* next_stack);

void prepare(Context& context, char* base, size_t bytes, void (*entry)()) {
    void** top = reinterpret_cast<void**>(base + bytes);
    // A null return address above the entry gives the stack the alignment that a call would.
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(entry);
    context.stack = top - 8;
}

inline void switch_context(Context& from, Context& to) { pumice_emulator_switch(&from.stack, to.stack); }

#else

void prepare(Context& context, char* base, size_t bytes, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = base;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

inline void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

#endif

const char* name_of(Operation operation) {
    switch (operation) {
        case Operation::SyncWarp: return "__syncwarp";
        case Operation::Shuffle: return "__shfl_sync";
        case Operation::ShuffleUp: return "__shfl_up_sync";
        case Operation::ShuffleDown: return "__shfl_down_sync";
        case Operation::ShuffleXor: return "__shfl_xor_sync";
        case Operation::Ballot: return "__ballot_sync";
        case Operation::Any: return "__any_sync";
        case Operation::All: return "__all_sync";
        case Operation::ReduceAdd: return "__reduce_add_sync";
        case Operation::ReduceMinUnsigned: return "__reduce_min_sync (unsigned)";
        case Operation::ReduceMaxUnsigned: return "__reduce_max_sync (unsigned)";
        case Operation::ReduceMinSigned: return "__reduce_min_sync (signed)";
        case Operation::ReduceMaxSigned: return "__reduce_max_sync (signed)";
        case Operation::ReduceOr: return "__reduce_or_sync";
        case Operation::ReduceAnd: return "__reduce_and_sync";
        case Operation::ReduceXor: return "__reduce_xor_sync";
        case Operation::MatchAny: return "__match_any_sync";
        case Operation::SyncThreads: return "__syncthreads";
        case Operation::SyncThreadsOr: return "__syncthreads_or";
        case Operation::SyncThreadsAnd: return "__syncthreads_and";
        case Operation::SyncThreadsCount: return "__syncthreads_count";
    }
    return "an unknown operation";
}

}  // namespace

const char* Machine::fail(const char* format, ...) {
    va_list arguments_of_format;
    va_start(arguments_of_format, format);
    vsnprintf(message, sizeof message, format, arguments_of_format);
    va_end(arguments_of_format);
    failed = true;
    return message;
}

void abandon_launch() {
    const Lane& lane = this_lane();
    switch_context(lane.warp->context[lane.index], machine->scheduler);
    __builtin_unreachable();
}

namespace {

// Yields to the next lane of the turn, or to the scheduler. Switching between lanes directly halves the number of switches.
inline void yield_from(const Lane& lane) {
    Warp& warp = *lane.warp;
    if (warp.turn == 0) {
        switch_context(warp.context[lane.index], machine->scheduler);
        return;
    }
    const uint32_t next = warp.take_next_of_turn();
    if (next == lane.index) return;
    here = &warp.lanes[next];
    switch_context(warp.context[lane.index], warp.context[next]);
}

void set_results(Warp& warp, uint32_t mask, uint64_t result) {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) warp.result[__builtin_ctz(rest)] = result;
}

template <typename Combine>
void reduce(Warp& warp, uint32_t mask, Combine combine) {
    uint32_t total = uint32_t(warp.value[__builtin_ctz(mask)]);
    for (uint32_t rest = mask & (mask - 1); rest != 0; rest &= rest - 1) {
        total = combine(total, uint32_t(warp.value[__builtin_ctz(rest)]));
    }
    set_results(warp, mask, total);
}

void shuffle_values(Warp& warp, uint32_t mask) {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        const uint32_t source = warp.source[lane];
        // Undefined on the GPU, and harmless if the lane ignores the result.
        warp.result[lane] = mask >> source & 1 ? warp.value[source] : POISON;
    }
}

// The lanes of `mask` whose value passes `holds`.
template <typename Holds>
uint32_t lanes_where(const Warp& warp, uint32_t mask, Holds holds) {
    uint32_t found = 0;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        if (holds(warp.value[lane])) found |= 1u << lane;
    }
    return found;
}

void compute_results(Warp& warp, uint32_t mask, Operation operation) {
    const auto is_set = [](uint64_t value) { return value != 0; };
    switch (operation) {
        case Operation::Shuffle:
        case Operation::ShuffleUp:
        case Operation::ShuffleDown:
        case Operation::ShuffleXor: return shuffle_values(warp, mask);
        case Operation::Ballot: return set_results(warp, mask, lanes_where(warp, mask, is_set));
        case Operation::Any: return set_results(warp, mask, lanes_where(warp, mask, is_set) != 0);
        case Operation::All: return set_results(warp, mask, lanes_where(warp, mask, is_set) == mask);
        case Operation::ReduceAdd: return reduce(warp, mask, [](uint32_t a, uint32_t b) { return a + b; });
        case Operation::ReduceOr: return reduce(warp, mask, [](uint32_t a, uint32_t b) { return a | b; });
        case Operation::ReduceAnd: return reduce(warp, mask, [](uint32_t a, uint32_t b) { return a & b; });
        case Operation::ReduceXor: return reduce(warp, mask, [](uint32_t a, uint32_t b) { return a ^ b; });
        case Operation::ReduceMinUnsigned: return reduce(warp, mask, [](uint32_t a, uint32_t b) { return min(a, b); });
        case Operation::ReduceMaxUnsigned: return reduce(warp, mask, [](uint32_t a, uint32_t b) { return max(a, b); });
        case Operation::ReduceMinSigned:
            return reduce(warp, mask, [](uint32_t a, uint32_t b) { return uint32_t(min(int32_t(a), int32_t(b))); });
        case Operation::ReduceMaxSigned:
            return reduce(warp, mask, [](uint32_t a, uint32_t b) { return uint32_t(max(int32_t(a), int32_t(b))); });
        case Operation::MatchAny:
            for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
                const uint32_t lane = __builtin_ctz(rest);
                warp.result[lane] = lanes_where(warp, mask, [&](uint64_t v) { return v == warp.value[lane]; });
            }
            return;
        default: return;  // SyncWarp has no result; barriers do not come here.
    }
}

// Called by the lane that completes the set of waiting lanes.
void finish_collective(Warp& warp, const Lane& last) {
    const uint32_t mask = warp.mask[last.index];
    const Operation operation = warp.operation[last.index];
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const uint32_t lane = __builtin_ctz(rest);
        // That lane waits for other lanes first. If it never arrives, the warp is reported as deadlocked.
        if (warp.mask[lane] != mask) return;
        if (warp.operation[lane] != operation) {
            machine->fail("block %u, warp %u: lane %u is in %s while lane %u is in %s with the same mask 0x%08x",
                          last.block_index.x, warp.index, last.index, name_of(operation), lane,
                          name_of(warp.operation[lane]), mask);
            abandon_launch();
        }
    }
    compute_results(warp, mask, operation);
    warp.n_collectives++;
    warp.waiting &= ~mask;
    warp.ready |= mask;
    // At random, the lanes must wait for the warp's next turn, so that other warps overtake it.
    if (!machine->one_in_eight()) warp.turn |= mask;
    machine->draw_lane_order(warp);
}

void lane_main() {
    machine->kernel(machine->arguments);
    settle_rewrite();
    const Lane& lane = this_lane();
    Warp& warp = *lane.warp;
    Block& block = *warp.block;
    if (!warp.copies[lane.index].empty()) {
        machine->fail("block %u: thread %u exits before its copies to shared memory are done", lane.block_index.x,
                      lane.thread_index.x);
        abandon_launch();
    }
    warp.live &= ~lane.bit();
    warp.ready &= ~lane.bit();
    block.n_live--;
    machine->n_spins = 0;
    // As on the GPU, lanes that have exited do not block a barrier.
    if (block.n_arrived != 0 && block.n_arrived == block.n_live) machine->release_barrier(block);
    yield_from(lane);
    __builtin_unreachable();
}

}  // namespace

void Machine::draw_lane_order(Warp& warp) {
    const uint64_t drawn = random();
    warp.first_lane = drawn >> 32 & 31;
    warp.descending = drawn >> 63;
}

void Machine::enqueue(Warp& warp) {
    if (warp.queued) return;
    warp.queued = true;
    runnable.push_back(&warp);
}

void Machine::release_barrier(Block& block) {
    switch (block.barrier_operation) {
        case Operation::SyncThreadsOr: block.barrier_result = block.n_predicates != 0; break;
        case Operation::SyncThreadsAnd: block.barrier_result = block.n_predicates == block.n_arrived; break;
        default: block.barrier_result = int(block.n_predicates);
    }
    block.n_arrived = 0;
    block.n_predicates = 0;
    block.n_barriers++;
    for (uint32_t i = 0; i < block.n_warps; i++) {
        Warp& warp = block.warps[i];
        if (warp.at_barrier == 0) continue;
        warp.ready |= warp.at_barrier;
        warp.at_barrier = 0;
        enqueue(warp);
    }
    n_spins = 0;
}

void Machine::start_warp(Block& block, uint32_t index) {
    Warp& warp = block.warps[index];
    const uint32_t n_lanes = min(block_dim.x - index * LANES, LANES);
    warp.block = &block;
    warp.index = index;
    warp.queued = false;
    warp.existing = warp.live = warp.ready = n_lanes == LANES ? ~0u : (1u << n_lanes) - 1;
    warp.turn = warp.waiting = warp.at_barrier = warp.n_collectives = 0;
    for (uint32_t i = 0; i < n_lanes; i++) {
        const uint32_t thread = index * LANES + i;
        Lane& lane = warp.lanes[i];
        lane.thread_index = {thread, 0, 0};
        lane.block_index = {block_order[n_started], 0, 0};
        lane.block_dim = block_dim;
        lane.grid_dim = grid_dim;
        lane.warp = &warp;
        lane.index = i;
        warp.copies[i].clear();
        warp.n_batches[i] = 0;
        prepare(warp.context[i], block.stacks.stack(thread), Stacks::stack_bytes(thread), lane_main);
    }
    enqueue(warp);
}

void Machine::start_block(Block& block) {
    block.n_live = block_dim.x;
    block.n_warps = (block_dim.x + LANES - 1) / LANES;
    block.n_arrived = block.n_predicates = 0;
    block.n_barriers = 1;
    block.shared_bytes = 0;
    block.shared_objects.clear();
    block.accesses.clear();
    for (uint32_t i = 0; i < block.n_warps; i++) start_warp(block, i);
    n_started++;
}

// CUDA guarantees no order of blocks, so a kernel that relies on one must fail here.
void Machine::draw_block_order() {
    block_order.resize(grid_dim.x);
    for (uint32_t i = 0; i < grid_dim.x; i++) block_order[i] = i;
    for (uint32_t i = grid_dim.x; i > 1; i--) std::swap(block_order[i - 1], block_order[random_below(i)]);
}

void Machine::run_turn(Warp& warp) {
    warp.turn = warp.ready;
    draw_lane_order(warp);
    const uint32_t first = warp.take_next_of_turn();
    here = &warp.lanes[first];
    switch_context(scheduler, warp.context[first]);
}

// Called if no lane of the warp can run: the barrier cannot open while some of them wait in a collective.
void Machine::report_deadlock(const Warp& warp) {
    const uint32_t waiting = __builtin_ctz(warp.waiting);
    const uint32_t mask = warp.mask[waiting];
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        if (warp.waiting >> i & 1 && warp.mask[i] == mask) arrived |= 1u << i;
    }
    const uint32_t missing = __builtin_ctz(mask & ~arrived);
    char state[96];
    if (!(warp.existing >> missing & 1)) {
        snprintf(state, sizeof state, "does not exist");
    } else if (!(warp.live >> missing & 1)) {
        snprintf(state, sizeof state, "has exited");
    } else if (warp.at_barrier >> missing & 1) {
        snprintf(state, sizeof state, "waits at %s", name_of(warp.block->barrier_operation));
    } else {
        snprintf(state, sizeof state, "waits in %s with mask 0x%08x", name_of(warp.operation[missing]),
                 warp.mask[missing]);
    }
    fail("block %u, warp %u: lane %u waits in %s with mask 0x%08x for lane %u, which %s",
         warp.lanes[waiting].block_index.x, warp.index, waiting, name_of(warp.operation[waiting]), mask, missing,
         state);
}

const char* Machine::run() {
    while (!runnable.empty()) {
        const uint32_t choice = random_below(uint32_t(runnable.size()));
        Warp& warp = *runnable[choice];
        run_turn(warp);
        if (failed) return message;
        if (warp.ready != 0) continue;
        warp.queued = false;
        runnable[choice] = runnable.back();
        runnable.pop_back();
        if (warp.waiting != 0) {
            report_deadlock(warp);
            return message;
        }
        if (warp.block->n_live == 0 && n_started < block_order.size()) start_block(*warp.block);
    }
    return nullptr;
}

namespace {

// Filled before `main` by static initialisers and only read afterwards.
std::map<std::string, KernelCall>& registry() {
    static std::map<std::string, KernelCall> kernels;
    return kernels;
}

}  // namespace

Registration::Registration(const char* name, KernelCall call) { registry()[name] = call; }

void* shared_storage(const void* key, size_t bytes, size_t alignment) {
    Block& block = *this_lane().warp->block;
    for (const SharedObject& object : block.shared_objects) {
        if (object.key == key) return object.storage;
    }
    alignment = max(alignment, size_t(16));
    const size_t offset = (block.shared_bytes + alignment - 1) / alignment * alignment;
    if (offset + bytes > MAX_SHARED_BYTES) {
        machine->fail("block %u: %zu bytes of shared memory, more than the %zu that a kernel may declare",
                      here->block_index.x, offset + bytes, MAX_SHARED_BYTES);
        abandon_launch();
    }
    block.shared_bytes = offset + bytes;
    block.shared_objects.push_back({key, block.shared + offset});
    std::memset(block.shared + offset, int(POISON & 0xff), bytes);
    block.accesses.resize(block.shared_bytes);
    return block.shared + offset;
}

uint64_t collective(Operation operation, uint32_t mask, uint64_t value, uint32_t source) {
    settle_rewrite();
    const Lane& lane = this_lane();
    Warp& warp = *lane.warp;
    if (!(mask & lane.bit())) {
        machine->fail("block %u, warp %u: lane %u calls %s with mask 0x%08x, which does not include it",
                      lane.block_index.x, warp.index, lane.index, name_of(operation), mask);
        abandon_launch();
    }
    warp.operation[lane.index] = operation;
    warp.mask[lane.index] = mask;
    warp.source[lane.index] = source;
    warp.value[lane.index] = value;
    warp.waiting |= lane.bit();
    warp.ready &= ~lane.bit();
    if ((warp.waiting & mask) == mask) finish_collective(warp, lane);
    yield_from(lane);
    return warp.result[lane.index];
}

int barrier(Operation operation, int predicate) {
    settle_rewrite();
    const Lane& lane = this_lane();
    Warp& warp = *lane.warp;
    Block& block = *warp.block;
    if (block.n_arrived != 0 && block.barrier_operation != operation) {
        machine->fail("block %u, warp %u: lane %u is at %s while others are at %s", lane.block_index.x, warp.index,
                      lane.index, name_of(operation), name_of(block.barrier_operation));
        abandon_launch();
    }
    block.barrier_operation = operation;
    block.n_arrived++;
    block.n_predicates += predicate != 0;
    warp.at_barrier |= lane.bit();
    warp.ready &= ~lane.bit();
    if (block.n_arrived == block.n_live) machine->release_barrier(block);
    yield_from(lane);
    return block.barrier_result;
}

void spin_pause() {
    settle_rewrite();
    const Lane& lane = this_lane();
    if (++machine->n_spins > MAX_SPINS) {
        machine->fail("block %u, warp %u: lane %u spins, and in %llu pauses no lane has changed a shared word, "
                      "passed a barrier or exited",
                      lane.block_index.x, lane.warp->index, lane.index, (unsigned long long)MAX_SPINS);
        abandon_launch();
    }
    yield_from(lane);
}

void before_shared_word() {
    settle_rewrite();
    if (machine->one_in_eight()) yield_from(this_lane());
}

void progressed() { machine->n_spins = 0; }

}  // namespace pumice_emulator

extern "C" const char* pumice_emulator_launch(const char* kernel, uint32_t grid, uint32_t block, uint64_t seed,
                                              uint32_t resident, void** arguments, const PumiceEmulatorBuffer* buffers,
                                              size_t n_buffers) {
    using namespace pumice_emulator;
    static thread_local Machine own_machine;
    Machine& m = own_machine;
    const auto found = registry().find(kernel);
    if (found == registry().end()) return m.fail("no kernel is registered as %s", kernel);
    if (grid == 0 || block == 0 || block > MAX_THREADS || resident == 0) {
        return m.fail("%s: cannot launch %u blocks of %u threads, %u at a time", kernel, grid, block, resident);
    }
    machine = &m;
    m.kernel = found->second;
    m.arguments = arguments;
    m.buffers = buffers;
    m.n_buffers = n_buffers;
    m.last_buffer = nullptr;
    m.grid_dim = {grid, 1, 1};
    m.block_dim = {block, 1, 1};
    m.runnable.clear();
    m.n_started = 0;
    m.n_spins = 0;
    m.rewrite.n_bytes = 0;
    m.failed = false;
    // The multiplication makes small seeds differ in all bits; the state must not be zero.
    m.random_state = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
    resident = min(resident, grid);
    while (m.blocks.size() < resident) m.blocks.push_back(std::make_unique<Block>());
    m.draw_block_order();
    for (uint32_t i = 0; i < resident; i++) {
        Block& slot = *m.blocks[i];
        if (slot.warps.size() * LANES < block) slot.warps.resize((block + LANES - 1) / LANES);
        if (!slot.stacks.reserve(block)) return m.fail("%s: no memory for the stacks of a block", kernel);
        m.start_block(slot);
    }
    const char* message = m.run();
    here = nullptr;
    return message;
}
