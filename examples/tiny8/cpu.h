/*
 * A part of the 6502, an 8-bit processor of 1975: the instructions that the program of this example
 * uses, with the opcodes that they have there. Memory is 64 KiB, as seen by the processor.
 */
#ifndef TINY8_CPU_H
#define TINY8_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum opcode {
	ORA_IMM = 0x09, CLC = 0x18, JSR = 0x20, AND_IMM = 0x29, SEC = 0x38, EOR_IMM = 0x49,
	JMP = 0x4c, EOR_IND = 0x51, RTS = 0x60, ADC_ZP = 0x65, STA_ZP = 0x85, STX_ZP = 0x86,
	DEY = 0x88, TXA = 0x8a, STA_ABS = 0x8d, STA_IND = 0x91, LDY_IMM = 0xa0, LDX_IMM = 0xa2,
	LDA_ZP = 0xa5, TAY = 0xa8, LDA_IMM = 0xa9, TAX = 0xaa, LDA_IND = 0xb1, INY = 0xc8,
	CMP_IMM = 0xc9, DEX = 0xca, WAI = 0xcb, BNE = 0xd0, INC_ZP = 0xe6, SBC_ZP = 0xe5,
	LDY_ZP = 0xa4, BEQ = 0xf0,
};

struct cpu {
	uint16_t pc;
	uint8_t a, x, y, sp;
	bool zero, carry;
};

/* Runs until the program waits for the next frame (WAI). False: an unknown instruction is at pc. */
bool cpu_run_frame(struct cpu *cpu, uint8_t *memory);

#endif
