// Times each kernel of codec `balanced` on a CUDA device, and checks that what comes back is within the bound:
//
//   for f in encode decode sums; do nvcc -arch=sm_90 -std=c++17 --fmad=false -cubin ../kernels/balanced_$f.cu; done
//   g++ -std=c++17 -O2 -I$CUDA_HOME/include balanced.cpp -o balanced -lcuda && ./balanced [step] [bound-checks: 0 or 1]
//
// The array is 512^3 f32 in chunks of 16 x 512 x 512: waves of many lengths and a little noise.
#include "../kernels/balanced.cuh"

#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

using namespace balanced;

#define CHECK(call)                                                                          \
    do {                                                                                     \
        CUresult result = (call);                                                            \
        if (result != CUDA_SUCCESS) {                                                        \
            const char* text = nullptr;                                                      \
            cuGetErrorString(result, &text);                                                 \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text ? text : "?");         \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

constexpr uint32_t COUNT_SLOTS = 8, RESERVE = 32768, EDGE_BLOCKS = 64;

struct EncodeWork {
    uint64_t chunks, states, tile_chunks, unit_chunks, sample_costs, classes, bytes, low, plane_bytes, tiles, sorted,
        class_symbols, rest, counts, codes, lengths, sizes, rest_states, stream_states, parameters, tickets;
    uint32_t n_chunks, launch, split_blocks, reserved;
};
struct EncodeJob {
    EncodeWork work;
    Coding<float> coding;
};
struct DecodeWork {
    uint64_t chunks, states, tile_chunks, classes, bytes, tiles, sorted, class_symbols, rest, lengths, stream_at, sizes,
        escapes_of, apart_at, escapes, group_low, group_wide, coders;
    uint32_t n_chunks, class_units, units, patch_blocks, edge_blocks, reserved;
    uint64_t columns, edges, edge_sums;
};
struct DecodeJob {
    DecodeWork work;
    Coding<float> coding;
    uint32_t axis;
};

static std::vector<CUmodule> modules;
static std::map<std::string, CUfunction> functions;
static bool is_timed = false;
static std::vector<std::pair<std::string, float>> times;

static CUfunction find(const std::string& name) {
    CUfunction& function = functions[name];
    for (CUmodule module : modules) {
        if (function == nullptr && cuModuleGetFunction(&function, module, name.c_str()) != CUDA_SUCCESS) function = nullptr;
    }
    if (function == nullptr) {
        printf("there is no kernel %s\n", name.c_str());
        exit(1);
    }
    return function;
}

static void launch(const char* name, uint32_t blocks, uint32_t threads, void* job) {
    void* arguments[] = {job};
    if (!is_timed) {
        CHECK(cuLaunchKernel(find(name), blocks, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
        return;
    }
    CUevent start, end;
    CHECK(cuEventCreate(&start, 0));
    CHECK(cuEventCreate(&end, 0));
    CHECK(cuEventRecord(start, nullptr));
    CHECK(cuLaunchKernel(find(name), blocks, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(cuEventRecord(end, nullptr));
    CHECK(cuEventSynchronize(end));
    float ms;
    CHECK(cuEventElapsedTime(&ms, start, end));
    times.push_back({name, ms});
}

static uint64_t room(size_t n_bytes) {
    CUdeviceptr at;
    CHECK(cuMemAlloc(&at, n_bytes + 256));
    CHECK(cuMemsetD8(at, 0, n_bytes + 256));
    return at;
}

template <class V>
static uint64_t upload(const std::vector<V>& values) {
    uint64_t at = room(values.size() * sizeof(V));
    CHECK(cuMemcpyHtoD(at, values.data(), values.size() * sizeof(V)));
    return at;
}

template <class F>
static float time_of(F work, int n) {
    std::vector<float> all;
    for (int i = 0; i < n + 2; ++i) {
        CUevent start, end;
        CHECK(cuEventCreate(&start, 0));
        CHECK(cuEventCreate(&end, 0));
        CHECK(cuEventRecord(start, nullptr));
        work();
        CHECK(cuEventRecord(end, nullptr));
        CHECK(cuEventSynchronize(end));
        float ms;
        CHECK(cuEventElapsedTime(&ms, start, end));
        if (i >= 2) all.push_back(ms);
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

int main(int n_arguments, char** arguments) {
    const float step = n_arguments > 1 ? float(atof(arguments[1])) : 1.0f / 512;
    CHECK(cuInit(0));
    CUdevice device;
    CHECK(cuDeviceGet(&device, 0));
    CUcontext context;
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    for (const char* file : {"balanced_encode.cubin", "balanced_decode.cubin", "balanced_sums.cubin"}) {
        CUmodule module;
        CHECK(cuModuleLoad(&module, file));
        modules.push_back(module);
    }
#ifndef SMALL
    const uint32_t nx = 512, ny = 512, nz = 16, nc = 32;
#else
    const uint32_t nx = 256, ny = 64, nz = 4, nc = 2;
#endif
    const uint32_t n_values = nz * ny * nx, n_groups = n_values / 32;
    std::vector<float> values(size_t(nc) * n_values);
    uint32_t noise = 1;
    for (size_t i = 0; i < values.size(); ++i) {
        float x = i % nx, y = i / nx % ny, z = float(i / nx / ny), v = 0;
        v += sinf(0.011f * x + 0.013f * y) * cosf(0.017f * z) + 0.3f * sinf(0.05f * x - 0.04f * y + 0.03f * z);
        v += 0.1f * sinf(0.21f * x + 0.17f * z) * sinf(0.19f * y);
        noise = noise * 1664525 + 1013904223;
        values[i] = v + 0.002f * float(int32_t(noise)) / 2147483648.0f;
    }
    const uint64_t on_device = upload(values), restored = room(values.size() * 4);

    const uint32_t n_tiles = (n_groups + TILE - 1) / TILE;
    const uint32_t n_slots = ((n_groups + 4095) / 4096 + (n_values * 3 / 2 + 4095) / 4096 + 66 + 7) / 8 * 8;
    const uint32_t n_strips = nx / 128, n_segments = ny / 8;
    const size_t groups = size_t(nc) * n_groups, slots = size_t(nc) * n_slots;
    const uint32_t payload_room = RESERVE + n_values * 2 + 16;
    const uint64_t payloads = room(size_t(nc) * payload_room);
    std::vector<Chunk> chunks(nc);
    std::vector<uint32_t> tile_chunks, unit_chunks;
    for (uint32_t i = 0; i < nc; ++i) {
        Chunk& c = chunks[i];
        c = Chunk{};
        c.values = on_device + size_t(i) * n_values * 4;
        c.payload = payloads + size_t(i) * payload_room;
        c.payload_bytes = payload_room;
        c.first_group = size_t(i) * n_groups;
        c.dims[0] = 1, c.dims[1] = nz, c.dims[2] = ny, c.dims[3] = nx;
        c.n_values = n_values;
        c.n_groups = n_groups;
        c.first_tile = i * n_tiles;
        c.n_tiles = n_tiles;
        c.first_slot = i * n_slots;
        c.n_slots = n_slots;
        c.first_column = size_t(i) * nz * n_segments * nx;
        c.first_edge = size_t(i) * nz * (n_strips + 1) * ny;
        tile_chunks.insert(tile_chunks.end(), n_tiles, i);
        unit_chunks.insert(unit_chunks.end(), n_slots / COUNT_SLOTS, i);
    }
    EncodeJob job{};
    EncodeWork& w = job.work;
    w.chunks = upload(chunks);
    w.states = room(nc * sizeof(State));
    w.tile_chunks = upload(tile_chunks);
    w.unit_chunks = upload(unit_chunks);
    w.sample_costs = room(nc * 48 * 16 * 4);
    w.classes = room(groups);
    w.bytes = room(groups * 32);
    w.plane_bytes = groups * 32;
    w.low = room(3 * groups * 32);
    w.tiles = room(nc * n_tiles * sizeof(Tile));
    w.sorted = room(groups * 4);
    w.class_symbols = room(groups);
    w.rest = room(groups * 32);
    w.counts = room(nc * 66 * 256 * 4);
    w.codes = room(nc * 66 * 256 * 4);
    w.lengths = room(nc * 66 * 256);
    w.sizes = room(slots * 8);
    w.stream_states = room(slots * 8);
    w.rest_states = room(slots);
    w.parameters = room(nc * RESERVE);
    w.tickets = room(16);
    w.n_chunks = nc;
    w.split_blocks = ny / 4 * n_strips / 4;
    job.coding.step = step;
    job.coding.inv_step = 1 / step;
    job.coding.tolerance = step * 0.5f;
    auto encode = [&] {
        ++w.launch;
        launch("balanced_sample_f32", nc * 48, 256, &job);
        launch("balanced_order_f32", nc, 256, &job);
        launch("balanced_split_f32", nc * 64, 256, &job);
        launch("balanced_split_plain_f32", nc * w.split_blocks, 128, &job);
        launch("balanced_tally", nc * n_tiles, 256, &w);
        launch("balanced_books", nc, 128, &w);
        launch("balanced_place", nc * n_tiles, 256, &w);
        launch("balanced_alphabets", nc * 64, 128, &w);
        launch("balanced_layout", nc, 32, &w);
        launch("balanced_count", uint32_t(slots / 8), 128, &w);
        launch("balanced_codebooks", nc * 66, 256, &w);
        launch("balanced_write", uint32_t(nc + slots), 128, &w);
        launch("balanced_finish_f32", nc * n_tiles, 256, &job);
    };
    encode();
    std::vector<State> states(nc);
    CHECK(cuMemcpyDtoH(states.data(), w.states, nc * sizeof(State)));
    size_t all_bytes = 0;
    for (uint32_t i = 0; i < nc; ++i) {
        if (states[i].is_odd) printf("chunk %u is odd\n", i);
        all_bytes += states[i].payload_bytes;
    }
    const double gigabytes = values.size() * 4e-9;
    printf("order %u, ratio %.2f, %u bytes of parameters\n", states[0].order, gigabytes * 1e9 / all_bytes, states[0].n_parameters);

    DecodeJob back{};
    DecodeWork& d = back.work;
    for (uint32_t i = 0; i < nc; ++i) {
        chunks[i].payload += states[i].payload_start;
        chunks[i].payload_bytes = states[i].payload_bytes;
        chunks[i].values = restored + size_t(i) * n_values * 4;
    }
    d.chunks = upload(chunks);
    d.states = room(nc * sizeof(State));
    d.tile_chunks = w.tile_chunks;
    d.classes = room(groups);
    d.bytes = room(groups * 32);
    d.tiles = room(nc * n_tiles * sizeof(Tile));
    d.sorted = room(groups * 4);
    d.class_symbols = room(groups);
    d.rest = room(groups * 32);
    d.lengths = room(nc * 66 * 256);
    d.stream_at = room(slots * 16);
    d.sizes = room(slots * 8);
    d.escapes_of = room(slots * 16);
    d.apart_at = room(slots * 16);
    d.escapes = room(groups * 16 * 2);
    d.group_low = room(groups * 4);
    d.group_wide = room(groups * 4);
    d.coders = room(nc * 64);
    d.n_chunks = nc;
    d.class_units = ((n_groups + 4095) / 4096 + 31) / 32;
    d.units = n_slots / 32 + 67;
    d.patch_blocks = n_segments * n_strips / 4;
    d.edge_blocks = EDGE_BLOCKS;
    d.columns = room(size_t(nc) * nz * n_segments * nx * 4);
    d.edges = room(size_t(nc) * nz * (n_strips + 1) * ny * 4);
    d.edge_sums = room(size_t(nc) * nz * (n_strips + 1) * ny * 4);
    back.coding = job.coding;
    auto decode = [&] {
        launch("balanced_open", nc, 256, &d);
        launch("balanced_classes", nc * d.class_units, 128, &d);
        launch("balanced_runs", nc * n_tiles, 256, &d);
        launch("balanced_spread", nc * n_tiles, 256, &d);
        launch("balanced_decode_tally", nc * n_tiles, 256, &d);
        launch("balanced_decode_books", nc, 128, &d);
        launch("balanced_decode_place", nc * n_tiles, 256, &d);
        launch("balanced_parameters", nc, 256, &d);
        launch("balanced_streams", nc * d.units, 128, &d);
        launch("balanced_apart", nc, 256, &d);
        launch("balanced_patch", nc * 64, 256, &d);
        launch("balanced_ends", nc, 32, &d);
        launch("balanced_offsets", nc * n_tiles, 256, &d);
        launch("balanced_edges", nc * d.patch_blocks, 128, &d);
        launch("balanced_columns", nc * EDGE_BLOCKS, 256, &d);
        launch("balanced_strips", nc * EDGE_BLOCKS, 256, &d);
        launch("balanced_lines", nc * EDGE_BLOCKS, 256, &d);
        launch("balanced_sum_f32", nc * d.patch_blocks, 128, &back);
        launch("balanced_join_f32", nc * 64, 256, &back);
        launch("balanced_starts_f32", nc * 64, 256, &back);
        launch("balanced_rows_f32", nc * 64, 256, &back);
        launch("balanced_restore_f32", nc * 64, 256, &back);
    };
    decode();
    CHECK(cuMemcpyDtoH(states.data(), d.states, nc * sizeof(State)));
    for (uint32_t i = 0; i < nc; ++i) {
        if (states[i].is_odd) printf("chunk %u is odd when decoded\n", i);
    }
    std::vector<float> out(values.size());
    CHECK(cuMemcpyDtoH(out.data(), restored, out.size() * 4));
    float worst = 0;
    for (size_t i = 0; i < out.size(); ++i) worst = std::max(worst, fabsf(out[i] - values[i]));
    printf("largest error %g, half a step %g\n", worst, step / 2);

    const float encode_ms = time_of(encode, 15), decode_ms = time_of(decode, 15);
    printf("encode %.3f ms, %.0f GB/s; decode %.3f ms, %.0f GB/s\n", encode_ms, gigabytes / encode_ms * 1e3, decode_ms,
           gigabytes / decode_ms * 1e3);
    is_timed = true;
    std::map<std::string, std::vector<float>> by_name;
    std::vector<std::string> names;
    for (int i = 0; i < 9; ++i) {
        times.clear();
        encode();
        decode();
        for (auto& [name, ms] : times) {
            if (by_name[name].empty()) names.push_back(name);
            by_name[name].push_back(ms);
        }
    }
    for (const std::string& name : names) {
        std::vector<float>& all = by_name[name];
        std::sort(all.begin(), all.end());
        printf("%8.1f us  %s\n", all[all.size() / 2] * 1e3, name.c_str());
    }
}
