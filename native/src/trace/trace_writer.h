/* What a trace writer holds, shared by what takes reads and what writes them. Internal. */
#ifndef SDS_SRC_TRACE_WRITER_H
#define SDS_SRC_TRACE_WRITER_H

#include <stdatomic.h>
#include <stdint.h>

#include "bytes.h"
#include "sds/owner_lock.h"
#include "sds/trace_format.h"
#include "spool_file.h"
#include "trace_layout.h"
#include "trace_streams.h"
#include "trace_walks.h"

#define SDS__N_ASIDE 32          /* boxes put aside */
#define SDS__N_THREADS 256       /* told apart; later ones share the last ordinal */
#define SDS__DATED_NS 1000000000 /* how long the date follows from the monotonic clock */
#define SDS__KNOWN_WAYS 4

/* A dataset that was added: equal bytes of its block have an equal hash. */
typedef struct sds__known_dataset {
    uint64_t hash[2];
    uint32_t id; /* of a parent's, or 0: none */
} sds__known_dataset;

/* States of the page that fork wipes. */
enum { SDS__WIPED = 0, SDS__ALIVE = 1, SDS__RENEWING = 2 };

struct sds_trace_writer {
    /* What every read looks at, side by side. */
    sds_owner_lock lock; /* held while a read is recorded, seldom while a file is written */
    _Atomic int *life;   /* zero in the child of a fork */
    int32_t n_aside;
    uint32_t n_inherited; /* ids up to this one were a parent's: its file has what they stand for */
    int full;
    int64_t dated_ns;    /* when the clocks were compared, monotonic */
    int64_t date_ns;     /* CLOCK_REALTIME less CLOCK_MONOTONIC then */
    int64_t interval_ns; /* of writing, at present: shorter while a child is young */
    int64_t flushed_ns;  /* 0: not yet */
    uint32_t n_threads;
    uintptr_t thread[SDS__N_THREADS];
    sds__box aside[SDS__N_ASIDE];
    sds__walks walks;
    sds_hyperslab slab; /* of the one that is being folded */

    sds__streams streams;
    char *spool_dir;
    char *text; /* the process's strings */
    sds_trace_process process;
    int64_t max_file_bytes;
    int64_t flush_interval_ns;
    sds__spool_file file;

    /* What was written is forgotten, but for the hashes of some: memory has a bound. A fork at any
     * moment leaves ids that were given counted, so that the child takes none of them for its own.
     */
    _Atomic uint32_t n_datasets; /* ids given */
    uint32_t max_datasets;
    sds__known_dataset (*known)[SDS__KNOWN_WAYS]; /* of those added before */
    sds__buffer descriptions; /* blocks of datasets, to be written before the records */

    sds__buffer records; /* payload of the block to come */
    sds__record_coder coder;
    int64_t n_reads_buffered;
    int64_t n_dropped;
    int64_t n_dropped_written;
};

/* Anew, which of both clocks is how far ahead. */
void sds__trace_compare_clocks(sds_trace_writer *writer);

/* The date of a moment just gone by. */
static inline int64_t sds__trace_date(sds_trace_writer *writer, int64_t monotonic_ns)
{
    if (monotonic_ns - writer->dated_ns >= SDS__DATED_NS) sds__trace_compare_clocks(writer);
    return monotonic_ns + writer->date_ns;
}

/* Of writing; no longer than the options say. */
static inline void sds__trace_set_interval(sds_trace_writer *writer, int64_t interval_ns)
{
    writer->interval_ns =
        interval_ns < writer->flush_interval_ns ? interval_ns : writer->flush_interval_ns;
}

/* In a child that learns only now that it is one. */
__attribute__((cold)) void sds__trace_begin_life(sds_trace_writer *writer);

/* 0 where this very thread holds it: then the writer is left as it is. */
static inline int sds__trace_lock(sds_trace_writer *writer)
{
    if (atomic_load_explicit(writer->life, memory_order_acquire) != SDS__ALIVE)
        sds__trace_begin_life(writer);
    return sds_owner_lock_take(&writer->lock);
}

static inline void sds__trace_unlock(sds_trace_writer *writer)
{
    sds_owner_lock_release(&writer->lock);
}

/* Takes a record from a fold. */
void sds__trace_emit(void *writer, const sds_trace_record *record);
/* Count a read that is not recorded. */
void sds__trace_drop_read(sds_trace_writer *writer);
/* Write what is held. */
void sds__trace_write(sds_trace_writer *writer);
/* Fold the boxes that were put aside. */
void sds__trace_fold_boxes(sds_trace_writer *writer);

#endif
