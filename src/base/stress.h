/* The stress build (cmake -DRP_STRESS=ON, `make stress`): limits become tiny and odd, and rare
 * decisions are made at random, so that rare paths are common. Answers stay what they are. In every
 * other build all of this is constant and costs nothing. */
#ifndef RP_BASE_STRESS_H
#define RP_BASE_STRESS_H

#include <stdbool.h>
#include <stdint.h>

#ifndef RP_STRESS
#define RP_STRESS 0
#endif

/* A limit, and what it is in the stress build. */
#define RP_STRESSED(usual, tiny) (RP_STRESS ? (tiny) : (usual))

/* Each owner keeps its own state, zeroed at first: the same calls draw the same numbers. */
static inline uint32_t rp__stress_draw(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
    return *state >> 8;
}

/* True once in so many calls; never in other builds. */
static inline bool rp__stress_chance(uint32_t *state, uint32_t one_in) {
    return RP_STRESS && rp__stress_draw(state) % one_in == 0;
}

#endif
