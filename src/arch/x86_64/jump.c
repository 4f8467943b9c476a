/* Machine code that is put in place of a function: see arch.h. */
#include "arch/arch.h"

#include <string.h>

size_t sp_jump_code(uint8_t code[SP_JUMP_CODE_MAX], remote_addr target)
{
	static const uint8_t load[] = {0x49, 0xbb};       /* movabs $target, %r11 */
	static const uint8_t jump[] = {0x41, 0xff, 0xe3}; /* jmp *%r11 */
	size_t size = 0;

	memcpy(code, load, sizeof(load));
	size += sizeof(load);
	memcpy(code + size, &target, sizeof(target));
	size += sizeof(target);
	memcpy(code + size, jump, sizeof(jump));
	return size + sizeof(jump);
}

size_t sp_return_code(uint8_t code[SP_JUMP_CODE_MAX], int32_t value)
{
	static const uint8_t load[] = {0x48, 0xc7, 0xc0}; /* mov $value, %rax, sign-extended */
	static const uint8_t ret = 0xc3;
	size_t size = 0;

	memcpy(code, load, sizeof(load));
	size += sizeof(load);
	memcpy(code + size, &value, sizeof(value));
	size += sizeof(value);
	code[size] = ret;
	return size + 1;
}
