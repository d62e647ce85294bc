/* The two ways of reading that the simulator knows. Internal. */
#ifndef SDS_SIMULATE_H
#define SDS_SIMULATE_H

#include "simulate_engine.h"

/* What both ways start from. */
typedef struct sds__simulation {
    const sds_simulator_operation *operation;
    sds__machine machine;
    const sds_runs *runs; /* of each process */
    sds_simulated *counts;
    sds__engine engine;
} sds__simulation;

/* Every process reads its own runs. engine is initialised, and freed by the caller. */
sds_status sds__simulate_independent(sds__simulation *simulation);

/* Two phases: aggregators read windows of their file domains, and hand out what they hold. */
sds_status sds__simulate_collective(sds__simulation *simulation);

#endif
