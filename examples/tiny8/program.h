/* What the machine runs, and where its picture lies. */
#ifndef TINY8_PROGRAM_H
#define TINY8_PROGRAM_H

#include <stdint.h>

#define MEMORY_SIZE 0x10000

/* One byte for each pixel, a row in each 256 bytes. 0: dark; bits 1 to 6: a hue; bit 7: the ball. */
#define VIDEO 0x8000
#define VIDEO_WIDTH 256
#define VIDEO_HEIGHT 128

#define PROGRAM_START 0x0400

/* Puts the program into memory. */
void program_load(uint8_t *memory);

#endif
