/* The C code of README.md, which `cargo xtask test-c` puts into readme.inc, beside what it takes for granted. */
#include <stdio.h>

#include "pumice.h"

int main(void)
{
    static float field[20 * 30 * 40];
    const size_t shape[3] = {20, 30, 40};
    for (int i = 0; i < 20 * 30 * 40; i++)
        field[i] = (float)i;
#include "readme.inc"
    int is_smaller = pumice_buffer_size(stream) < sizeof field / 4;
    pumice_buffer_free(stream);
    pumice_config_free(config);
    return is_smaller ? 0 : 1;
}
