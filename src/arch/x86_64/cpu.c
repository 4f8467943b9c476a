/*
 * What a program can see of the processor. A program that was started here may have chosen code
 * paths by these features, so a machine that restores it must have all of them.
 */
#include "arch/arch.h"

#include "base/array.h"

#include <cpuid.h>
#include <pthread.h>

struct feature {
	const char *name; /* as in /proc/cpuinfo */
	unsigned leaf;
	unsigned subleaf;
	char word; /* 'a' to 'd': the register */
	unsigned bit;
};

static const struct feature features[] = {
        {"sse3", 1, 0, 'c', 0},
        {"pclmulqdq", 1, 0, 'c', 1},
        {"ssse3", 1, 0, 'c', 9},
        {"fma", 1, 0, 'c', 12},
        {"cx16", 1, 0, 'c', 13},
        {"sse4_1", 1, 0, 'c', 19},
        {"sse4_2", 1, 0, 'c', 20},
        {"movbe", 1, 0, 'c', 22},
        {"popcnt", 1, 0, 'c', 23},
        {"aes", 1, 0, 'c', 25},
        {"xsave", 1, 0, 'c', 26},
        {"avx", 1, 0, 'c', 28},
        {"f16c", 1, 0, 'c', 29},
        {"rdrand", 1, 0, 'c', 30},
        {"fsgsbase", 7, 0, 'b', 0},
        {"bmi1", 7, 0, 'b', 3},
        {"avx2", 7, 0, 'b', 5},
        {"bmi2", 7, 0, 'b', 8},
        {"erms", 7, 0, 'b', 9},
        {"rtm", 7, 0, 'b', 11},
        {"avx512f", 7, 0, 'b', 16},
        {"avx512dq", 7, 0, 'b', 17},
        {"rdseed", 7, 0, 'b', 18},
        {"adx", 7, 0, 'b', 19},
        {"avx512ifma", 7, 0, 'b', 21},
        {"clflushopt", 7, 0, 'b', 23},
        {"clwb", 7, 0, 'b', 24},
        {"avx512cd", 7, 0, 'b', 28},
        {"sha_ni", 7, 0, 'b', 29},
        {"avx512bw", 7, 0, 'b', 30},
        {"avx512vl", 7, 0, 'b', 31},
        {"avx512vbmi", 7, 0, 'c', 1},
        {"ospke", 7, 0, 'c', 4},
        {"avx512_vbmi2", 7, 0, 'c', 6},
        {"gfni", 7, 0, 'c', 8},
        {"vaes", 7, 0, 'c', 9},
        {"vpclmulqdq", 7, 0, 'c', 10},
        {"avx512_vnni", 7, 0, 'c', 11},
        {"avx512_bitalg", 7, 0, 'c', 12},
        {"avx512_vpopcntdq", 7, 0, 'c', 14},
        {"rdpid", 7, 0, 'c', 22},
        {"fsrm", 7, 0, 'd', 4},
        {"amx_bf16", 7, 0, 'd', 22},
        {"avx512_fp16", 7, 0, 'd', 23},
        {"amx_tile", 7, 0, 'd', 24},
        {"amx_int8", 7, 0, 'd', 25},
        {"sha512", 7, 1, 'a', 0},
        {"avx_vnni", 7, 1, 'a', 4},
        {"avx512_bf16", 7, 1, 'a', 5},
        {"avx_ifma", 7, 1, 'a', 23},
        {"xsaveopt", 0xd, 1, 'a', 0},
        {"xsavec", 0xd, 1, 'a', 1}, /* the C library calls functions for the first time with it */
        {"xgetbv1", 0xd, 1, 'a', 2},
        {"lahf_lm", 0x80000001, 0, 'c', 0},
        {"abm", 0x80000001, 0, 'c', 5},
        {"sse4a", 0x80000001, 0, 'c', 6},
        {"xop", 0x80000001, 0, 'c', 11},
        {"fma4", 0x80000001, 0, 'c', 16},
        {"rdtscp", 0x80000001, 0, 'd', 27},
};

#define FEATURES SP_COUNT_OF(features)

static const char *present[FEATURES + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What the processor says of a leaf; asked anew for another leaf only: a hypervisor answers slowly. */
struct leaf {
	unsigned number, subleaf;
	unsigned words['d' - 'a' + 1];
};

static bool has(struct leaf *leaf, const struct feature *feature)
{
	unsigned *words = leaf->words;

	if (leaf->number != feature->leaf || leaf->subleaf != feature->subleaf) {
		*leaf = (struct leaf){feature->leaf, feature->subleaf, {0}};
		__get_cpuid_count(leaf->number, leaf->subleaf, &words[0], &words[1], &words[2],
		                  &words[3]);
	}
	return words[feature->word - 'a'] >> feature->bit & 1;
}

static void find_features(void)
{
	struct leaf leaf = {0};
	size_t count = 0;

	for (size_t i = 0; i < FEATURES; i++)
		if (has(&leaf, &features[i]))
			present[count++] = features[i].name;
}

/* Found once: the processor does not change, so this is a constant and not state. */
const char *const *sp_cpu_features(void)
{
	pthread_once(&once, find_features);
	return present;
}

uint64_t sp_cpu_xfeatures(void)
{
	static const struct feature osxsave = {"osxsave", 1, 0, 'c', 27};
	struct leaf leaf = {0};
	uint32_t low, high;

	if (!has(&leaf, &osxsave))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

const char *sp_arch_name(void)
{
	return "x86_64";
}
