/* The processor: fetch, decode, execute. */
#include "cpu.h"

static uint8_t fetch(struct cpu *cpu, const uint8_t *memory)
{
	return memory[cpu->pc++];
}

static uint16_t fetch_word(struct cpu *cpu, const uint8_t *memory)
{
	uint16_t low = fetch(cpu, memory);

	return (uint16_t)(fetch(cpu, memory) << 8 | low);
}

/* (zero page), Y */
static uint16_t indirect(struct cpu *cpu, const uint8_t *memory)
{
	uint8_t at = fetch(cpu, memory);

	return (uint16_t)((memory[(uint8_t)(at + 1)] << 8 | memory[at]) + cpu->y);
}

static void set(struct cpu *cpu, uint8_t *target, unsigned value)
{
	*target = (uint8_t)value;
	cpu->zero = *target == 0;
}

static void add(struct cpu *cpu, unsigned value)
{
	unsigned sum = cpu->a + value + cpu->carry;

	cpu->carry = sum > 0xff;
	set(cpu, &cpu->a, sum);
}

static void branch(struct cpu *cpu, const uint8_t *memory, bool taken)
{
	int8_t distance = (int8_t)fetch(cpu, memory);

	if (taken)
		cpu->pc = (uint16_t)(cpu->pc + distance);
}

static void call(struct cpu *cpu, uint8_t *memory)
{
	uint16_t target = fetch_word(cpu, memory), back = (uint16_t)(cpu->pc - 1);

	memory[0x100 + cpu->sp--] = (uint8_t)(back >> 8);
	memory[0x100 + cpu->sp--] = (uint8_t)back;
	cpu->pc = target;
}

static void come_back(struct cpu *cpu, const uint8_t *memory)
{
	uint16_t low = memory[0x100 + ++cpu->sp];

	cpu->pc = (uint16_t)((memory[0x100 + ++cpu->sp] << 8 | low) + 1);
}

/* False: unknown. */
static bool execute(struct cpu *cpu, uint8_t *memory, uint8_t opcode)
{
	uint8_t at;

	switch (opcode) {
	case LDA_IMM: set(cpu, &cpu->a, fetch(cpu, memory)); break;
	case LDA_ZP: set(cpu, &cpu->a, memory[fetch(cpu, memory)]); break;
	case LDA_IND: set(cpu, &cpu->a, memory[indirect(cpu, memory)]); break;
	case LDX_IMM: set(cpu, &cpu->x, fetch(cpu, memory)); break;
	case LDY_IMM: set(cpu, &cpu->y, fetch(cpu, memory)); break;
	case LDY_ZP: set(cpu, &cpu->y, memory[fetch(cpu, memory)]); break;
	case STA_ZP: memory[fetch(cpu, memory)] = cpu->a; break;
	case STX_ZP: memory[fetch(cpu, memory)] = cpu->x; break;
	case STA_ABS: memory[fetch_word(cpu, memory)] = cpu->a; break;
	case STA_IND: memory[indirect(cpu, memory)] = cpu->a; break;
	case ORA_IMM: set(cpu, &cpu->a, cpu->a | fetch(cpu, memory)); break;
	case AND_IMM: set(cpu, &cpu->a, cpu->a & fetch(cpu, memory)); break;
	case EOR_IMM: set(cpu, &cpu->a, cpu->a ^ fetch(cpu, memory)); break;
	case EOR_IND: set(cpu, &cpu->a, cpu->a ^ memory[indirect(cpu, memory)]); break;
	case ADC_ZP: add(cpu, memory[fetch(cpu, memory)]); break;
	case SBC_ZP: add(cpu, memory[fetch(cpu, memory)] ^ 0xff); break;
	case CMP_IMM:
		at = fetch(cpu, memory);
		cpu->carry = cpu->a >= at;
		cpu->zero = cpu->a == at;
		break;
	case INC_ZP: at = fetch(cpu, memory); set(cpu, &memory[at], memory[at] + 1u); break;
	case INY: set(cpu, &cpu->y, cpu->y + 1u); break;
	case DEY: set(cpu, &cpu->y, cpu->y - 1u); break;
	case DEX: set(cpu, &cpu->x, cpu->x - 1u); break;
	case TAX: set(cpu, &cpu->x, cpu->a); break;
	case TAY: set(cpu, &cpu->y, cpu->a); break;
	case TXA: set(cpu, &cpu->a, cpu->x); break;
	case CLC: cpu->carry = false; break;
	case SEC: cpu->carry = true; break;
	case BNE: branch(cpu, memory, !cpu->zero); break;
	case BEQ: branch(cpu, memory, cpu->zero); break;
	case JMP: cpu->pc = fetch_word(cpu, memory); break;
	case JSR: call(cpu, memory); break;
	case RTS: come_back(cpu, memory); break;
	default: cpu->pc--; return false;
	}
	return true;
}

bool cpu_run_frame(struct cpu *cpu, uint8_t *memory)
{
	uint8_t opcode;

	while ((opcode = fetch(cpu, memory)) != WAI)
		if (!execute(cpu, memory, opcode))
			return false;
	return true;
}
