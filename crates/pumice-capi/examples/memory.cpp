// Handles that free themselves, errors as exceptions, and a stream that goes to a vector as it is written.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "pumice.h"

namespace {

// Calls the free function of a handle.
template <auto Free>
struct Freed {
    template <class T>
    void operator()(T *handle) const { Free(handle); }
};
using Config = std::unique_ptr<pumice_config, Freed<pumice_config_free>>;
using Reader = std::unique_ptr<pumice_reader, Freed<pumice_reader_free>>;
using Writer = std::unique_ptr<pumice_writer, Freed<pumice_writer_free>>;
using Buffer = std::unique_ptr<pumice_buffer, Freed<pumice_buffer_free>>;

void check(pumice_status status)
{
    if (status != PUMICE_STATUS_OK)
        throw std::runtime_error(pumice_last_error());
}

// A call whose last argument is a handle to be made.
template <class Handle, class Function, class... Arguments>
Handle make(Function function, Arguments... arguments)
{
    typename Handle::pointer handle = nullptr;
    check(function(arguments..., &handle));
    return Handle(handle);
}

// Exceptions must not pass through the library.
extern "C" int append(void *user, const void *bytes, size_t n_bytes) noexcept
try {
    auto &stream = *static_cast<std::vector<unsigned char> *>(user);
    auto *first = static_cast<const unsigned char *>(bytes);
    stream.insert(stream.end(), first, first + n_bytes);
    return 0;
} catch (...) {
    return 1;
}

} // namespace

int main()
try {
    constexpr std::size_t rows = 300, columns = 200;
    std::vector<float> wave(rows * columns);
    for (std::size_t i = 0; i < wave.size(); i++)
        wave[i] = std::exp(static_cast<float>(std::sin(1e-3 * static_cast<double>(i))) * 9);

    // A thousandth of each value: fit for what spans many magnitudes.
    Config config(pumice_config_new(PUMICE_BOUND_PW_REL, 1e-3));
    check(pumice_config_set_preset(config.get(), "fast"));
    std::vector<unsigned char> stream;
    const std::size_t row_shape[] = {columns};
    auto writer = make<Writer>(pumice_writer_create_callback, append, &stream, config.get(), PUMICE_DTYPE_F32, 1, row_shape);
    for (std::size_t row = 0; row < rows; row += 100)
        check(pumice_writer_write(writer.get(), &wave[row * columns], 100 * columns));
    check(pumice_writer_finish(writer.get(), nullptr));
    std::printf("%zu bytes became %zu\n", wave.size() * sizeof(float), stream.size());

    auto reader = make<Reader>(pumice_reader_open_memory, stream.data(), stream.size(), nullptr);
    const std::size_t start[] = {120, 50}, count[] = {2, 100};
    auto part = make<Buffer>(pumice_reader_read_region, reader.get(), PUMICE_DTYPE_F32, 2, start, count);
    float first;
    std::memcpy(&first, pumice_buffer_data(part.get()), sizeof first);
    const float original = wave[120 * columns + 50];
    if (std::fabs(first - original) > 1e-3f * original)
        throw std::runtime_error("the bound is broken");
    check(pumice_reader_check(reader.get(), PUMICE_DTYPE_F32, wave.data(), wave.size(), nullptr));

    // Damage is an error, not a wrong array.
    stream[stream.size() / 2] ^= 1;
    Buffer damaged;
    try {
        damaged = make<Buffer>(pumice_decompress, stream.data(), stream.size(), nullptr, PUMICE_DTYPE_F32);
    } catch (const std::runtime_error &error) {
        std::printf("as it should be: %s\n", error.what());
    }
    return damaged ? 1 : 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
}
