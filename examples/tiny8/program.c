/*
 * The program of the machine, in its assembly language: each frame draws one more row of a cellular
 * automaton (a pixel is on if exactly one of its upper neighbours was: Sierpinski's triangle grows),
 * in a hue that moves on, and lets a ball bounce over it.
 *
 * The ball is drawn by turning its bit in each pixel, and taken away the same way before the row is.
 *
 * A program is assembled in two passes over the same text: labels that are used before their place
 * are right in the second one.
 */
#include "program.h"

#include "cpu.h"

/* The zero page: the machine's fast variables. */
enum {
	ABOVE = 0x10, /* pointers take two bytes */
	BELOW = 0x12,
	HUE = 0x14,
	BALL_X = 0x20,
	BALL_Y,
	STEP_X,
	STEP_Y,
	LINE,
	LINES = 0x26,
};

#define BALL 8 /* pixels wide and high */

struct assembler {
	uint8_t *memory;
	uint16_t at;
	uint16_t frame, cell, dead, no_wrap, turn_ball, line, pixel;
	struct bounce {
		uint16_t turn, go_on;
	} x, y;
};

static void op(struct assembler *to, enum opcode opcode)
{
	to->memory[to->at++] = (uint8_t)opcode;
}

static void op8(struct assembler *to, enum opcode opcode, int operand)
{
	op(to, opcode);
	to->memory[to->at++] = (uint8_t)operand;
}

static void op16(struct assembler *to, enum opcode opcode, uint16_t operand)
{
	op8(to, opcode, operand & 0xff);
	to->memory[to->at++] = (uint8_t)(operand >> 8);
}

static void jump(struct assembler *to, enum opcode opcode, uint16_t label)
{
	op8(to, opcode, label - (to->at + 2));
}

static void set(struct assembler *to, int variable, int value)
{
	op8(to, LDA_IMM, value);
	op8(to, STA_ZP, variable);
}

static void start(struct assembler *to)
{
	set(to, ABOVE, 0);
	set(to, ABOVE + 1, VIDEO >> 8);
	set(to, BELOW, 0);
	set(to, BELOW + 1, (VIDEO >> 8) + 1);
	set(to, HUE, 1);
	set(to, BALL_X, 24);
	set(to, BALL_Y, 100);
	set(to, STEP_X, 2);
	set(to, STEP_Y, 0xff);
	op8(to, LDA_IMM, 1);
	op16(to, STA_ABS, VIDEO + VIDEO_WIDTH / 2);
	op16(to, JSR, to->turn_ball);
}

/* The row below: bit 0 of the left neighbour above, exclusive or that of the right one. */
static void draw_row(struct assembler *to)
{
	op8(to, LDY_IMM, 0);
	to->cell = to->at;
	op(to, DEY);
	op8(to, LDA_IND, ABOVE);
	op(to, INY);
	op(to, INY);
	op8(to, EOR_IND, ABOVE);
	op(to, DEY);
	op8(to, AND_IMM, 1);
	jump(to, BEQ, to->dead);
	op8(to, LDA_ZP, HUE);
	to->dead = to->at;
	op8(to, STA_IND, BELOW);
	op(to, INY);
	jump(to, BNE, to->cell);
}

/*
 * On to the next row. After the last one the picture begins anew, with one more pixel in the first row,
 * so that each is different. The hue moves on.
 */
static void next_row(struct assembler *to)
{
	op8(to, LDA_ZP, BELOW + 1);
	op8(to, STA_ZP, ABOVE + 1);
	op8(to, INC_ZP, BELOW + 1);
	jump(to, BNE, to->no_wrap);
	set(to, ABOVE + 1, VIDEO >> 8);
	set(to, BELOW + 1, (VIDEO >> 8) + 1);
	op8(to, LDY_ZP, HUE);
	op8(to, LDA_IMM, 1);
	op8(to, STA_IND, ABOVE);
	to->no_wrap = to->at;
	op8(to, INC_ZP, HUE);
	op8(to, LDA_ZP, HUE);
	op8(to, AND_IMM, 0x7f);
	op8(to, ORA_IMM, 1);
	op8(to, STA_ZP, HUE);
}

/* One step; at 0 and at `end` the direction turns. */
static void bounce(struct assembler *to, int place, int step, int end, struct bounce *labels)
{
	op8(to, LDA_ZP, place);
	op(to, CLC);
	op8(to, ADC_ZP, step);
	op8(to, STA_ZP, place);
	jump(to, BEQ, labels->turn);
	op8(to, CMP_IMM, end);
	jump(to, BNE, labels->go_on);
	labels->turn = to->at;
	op8(to, LDA_IMM, 0);
	op(to, SEC);
	op8(to, SBC_ZP, step);
	op8(to, STA_ZP, step);
	labels->go_on = to->at;
}

/* Turns the ball's bit in BALL lines of BALL pixels. */
static void turn_ball(struct assembler *to)
{
	to->turn_ball = to->at;
	set(to, LINE, 0);
	op8(to, LDA_ZP, BALL_Y);
	op8(to, ORA_IMM, VIDEO >> 8);
	op8(to, STA_ZP, LINE + 1);
	set(to, LINES, BALL);
	to->line = to->at;
	op8(to, LDY_ZP, BALL_X);
	op8(to, LDX_IMM, BALL);
	to->pixel = to->at;
	op8(to, LDA_IND, LINE);
	op8(to, EOR_IMM, 0x80);
	op8(to, STA_IND, LINE);
	op(to, INY);
	op(to, DEX);
	jump(to, BNE, to->pixel);
	op8(to, INC_ZP, LINE + 1);
	op8(to, LDA_ZP, LINES);
	op(to, TAX);
	op(to, DEX);
	op8(to, STX_ZP, LINES);
	jump(to, BNE, to->line);
	op(to, RTS);
}

static void assemble(struct assembler *to)
{
	to->at = PROGRAM_START;
	start(to);
	to->frame = to->at;
	op(to, WAI);
	op16(to, JSR, to->turn_ball);
	draw_row(to);
	next_row(to);
	bounce(to, BALL_X, STEP_X, VIDEO_WIDTH - BALL, &to->x);
	bounce(to, BALL_Y, STEP_Y, VIDEO_HEIGHT - BALL, &to->y);
	op16(to, JSR, to->turn_ball);
	op16(to, JMP, to->frame);
	turn_ball(to);
}

void program_load(uint8_t *memory)
{
	struct assembler to = {.memory = memory};

	assemble(&to);
	assemble(&to);
}
