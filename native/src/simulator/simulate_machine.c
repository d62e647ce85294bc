#include "simulate_machine.h"

#include <math.h>
#include <string.h>

#include "arithmetic.h"

#define NS_PER_S 1e9
#define MAX_BYTES (INT64_C(1) << 50)
#define MAX_DISKS (INT64_C(1) << 18)
#define MAX_OBJECT_PARTS (INT64_C(1) << 30)

static int is_size(int64_t n_bytes)
{
    return n_bytes >= 1 && n_bytes <= MAX_BYTES;
}

static int is_rate(double bytes_per_s)
{
    return bytes_per_s >= SDS_SIMULATOR_MIN_RATE && bytes_per_s <= SDS_SIMULATOR_MAX_RATE;
}

static int is_cost(double seconds)
{
    return seconds >= 0 && seconds <= SDS_SIMULATOR_MAX_COST_S;
}

static int is_machine(const sds_simulator_parameters *p)
{
    if (!is_size(p->striping.stripe_bytes) || p->striping.stripe_count < 1 ||
        !is_size(p->raid.unit_bytes) || p->raid.data_disks < 1 ||
        !is_size(p->raid.min_request_bytes) || p->raid.data_disks > MAX_DISKS ||
        p->striping.stripe_count > MAX_DISKS / p->raid.data_disks)
        return 0;
    if (!is_size(p->page_bytes) || p->read_ahead_bytes < 0 || p->read_ahead_bytes > MAX_BYTES ||
        p->read_ahead_gap_bytes < 0 || p->read_ahead_gap_bytes > MAX_BYTES ||
        p->read_ahead_after < 0 || !is_size(p->rpc_bytes) || p->max_rpcs_in_flight < 1 ||
        p->fetch_bytes < 0 || p->fetch_bytes > MAX_BYTES || p->processes_per_node < 1 ||
        p->processors_per_node < 0)
        return 0;
    if (p->striping.stripe_bytes % p->page_bytes != 0 || p->rpc_bytes % p->page_bytes != 0 ||
        p->read_ahead_bytes % p->page_bytes != 0)
        return 0;
    if (!is_cost(p->disk_request_s) || !is_cost(p->client_jitter_s) || !is_cost(p->client_start_s))
        return 0;
    if (!is_cost(p->client_request_s) || !is_rate(p->client_bytes_per_s) ||
        !is_cost(p->network_latency_s) || !is_cost(p->ost_request_s) ||
        !is_rate(p->ost_bytes_per_s) || p->ost_forgets < 0 || p->ost_forgets > 1)
        return 0;
    if (!is_cost(p->disk_settle_s) || !is_cost(p->disk_full_stroke_s) ||
        p->disk_full_stroke_s < p->disk_settle_s || !is_cost(p->disk_revolution_s) ||
        !is_rate(p->disk_bytes_per_s) || !is_size(p->disk_capacity_bytes) ||
        !is_cost(p->disk_first_s))
        return 0;
    return p->n_aggregators >= 1 && p->n_aggregators <= MAX_OBJECT_PARTS &&
           is_size(p->collective_buffer_bytes) && is_cost(p->shuffle_message_s) &&
           is_rate(p->shuffle_bytes_per_s) && p->max_events >= 1;
}

static int64_t ns_of(double seconds)
{
    return (int64_t)(seconds * NS_PER_S + 0.5);
}

static sds__pace pace_of(double bytes_per_s)
{
    return (sds__pace)(NS_PER_S / bytes_per_s * 4294967296.0 + 0.5);
}

sds_status sds__machine_of(const sds_simulator_parameters *parameters, int is_request_by_request,
                           sds__machine *out)
{
    if (!is_machine(parameters)) return SDS_EINVAL;
    const sds_raid *raid = &parameters->raid;
    memset(out, 0, sizeof *out);
    out->given = *parameters;
    const int is_lockstep = raid->min_request_bytes % raid->data_disks == 0 &&
                            raid->min_request_bytes / raid->data_disks % raid->unit_bytes == 0;
    if (is_lockstep && !is_request_by_request) {
        out->n_disks = 1;
        out->stands_for = raid->data_disks;
        out->cell_bytes = raid->min_request_bytes / raid->data_disks;
    } else {
        out->n_disks = raid->data_disks;
        out->stands_for = 1;
        out->cell_bytes = sds__greatest_common_divisor(raid->unit_bytes, raid->min_request_bytes);
    }
    out->client_request_ns = ns_of(parameters->client_request_s);
    /* Time has to go on from one event of a process to its next. */
    out->latency_ns = sds__greatest(1, ns_of(parameters->network_latency_s));
    out->ost_request_ns = ns_of(parameters->ost_request_s);
    out->disk_request_ns = ns_of(parameters->disk_request_s);
    out->half_revolution_ns = ns_of(parameters->disk_revolution_s / 2);
    out->settle_ns = ns_of(parameters->disk_settle_s);
    const double stroke_ns =
        (parameters->disk_full_stroke_s - parameters->disk_settle_s) * NS_PER_S;
    out->stroke_ns = stroke_ns / sqrt((double)parameters->disk_capacity_bytes);
    /* Nobody knows where the head stands: the mean over two places of the disk. */
    out->first_ns = out->settle_ns + (int64_t)(stroke_ns * 8 / 15) + out->half_revolution_ns;
    if (parameters->disk_first_s > 0) out->first_ns = ns_of(parameters->disk_first_s);
    out->shuffle_message_ns = ns_of(parameters->shuffle_message_s);
    out->client_pace = pace_of(parameters->client_bytes_per_s);
    out->ost_pace = pace_of(parameters->ost_bytes_per_s);
    out->disk_pace = pace_of(parameters->disk_bytes_per_s);
    out->shuffle_pace = pace_of(parameters->shuffle_bytes_per_s);
    return SDS_OK;
}

int64_t sds__positioning_ns(const sds__machine *machine, int64_t from, int64_t to, int *is_seek)
{
    const int64_t distance = to < from ? from - to : to - from;
    *is_seek = 0;
    if (distance == 0) return 0;
    const int64_t seek = machine->settle_ns +
                         (int64_t)(machine->stroke_ns * sqrt((double)distance)) +
                         machine->half_revolution_ns;
    if (to > from) {
        const int64_t through = sds__transfer_ns(machine->disk_pace, distance);
        if (through <= seek) return through;
    }
    *is_seek = 1;
    return seek;
}

int sds__deal(int64_t low, int64_t high, int64_t unit, int64_t n, int64_t i, int64_t *from,
              int64_t *to)
{
    const int64_t first_block = low / unit, last_block = (high - 1) / unit;
    const int64_t first = first_block + (i - first_block % n + n) % n;
    const int64_t last = last_block - (last_block % n - i + n) % n;
    if (first > last) return 0;
    *from = first / n * unit + (first == first_block ? low % unit : 0);
    *to = last / n * unit + (last == last_block ? (high - 1) % unit + 1 : unit);
    return 1;
}
