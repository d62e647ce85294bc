/* Which file system holds a file: what its time stamps are worth, and what tells it from another
 * one that is mounted at the same place.
 *
 * Inode, size, mtime and ctime tell a file from others of one file system, and from itself after
 * any change that moved a time stamp. They do not tell it from a file of another image mounted
 * there (images made in one second agree in all four), nor from itself after a loss of power that
 * kept the bytes of a write and lost its time stamps. The instance of the file system does: it
 * differs after every restart of the machine, and when another disk or image is mounted. */
#ifndef SDS_FILE_SYSTEM_H
#define SDS_FILE_SYSTEM_H

#include <stdint.h>

#include "sds/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sds_file_system_kind {
    SDS_FILE_SYSTEM_UNKNOWN = 0, /* FUSE, SMB, ...: may keep no ctime, or the times of anybody */
    SDS_FILE_SYSTEM_MEMORY = 1,  /* tmpfs: stores into mappings leave no time stamp */
    SDS_FILE_SYSTEM_DISK = 2,  /* this kernel stamps every change, after an fsync mapped ones too */
    SDS_FILE_SYSTEM_IMAGE = 3, /* cannot be written */
    SDS_FILE_SYSTEM_SERVER = 4, /* one server stamps every change, by its clock */
    SDS_FILE_SYSTEM_CLUSTER = 5 /* the machines that write stamp, each by its clock */
} sds_file_system_kind;

/* Instances that are none. */
#define SDS_INSTANCE_SHARED 0  /* of SERVER and CLUSTER, which many machines see */
#define SDS_INSTANCE_UNKNOWN 1 /* nothing tells this file system from another one */

typedef struct sds_file_system {
    uint32_t type;     /* f_type of statfs(2) */
    int32_t kind;      /* sds_file_system_kind */
    uint64_t instance; /* less than 2^63 */
} sds_file_system;

/* SDS_EIO with errno. */
sds_status sds_file_system_of_fd(int fd, sds_file_system *out);

/* The instance alone, and the number of the device that holds the path (st_dev): one system call
 * for a mount that this process has asked about before, where the kernel numbers mounts uniquely
 * (Linux 6.8). SDS_EIO with errno. */
sds_status sds_instance_of_path(const char *path, uint64_t *device, uint64_t *instance);

#ifdef __cplusplus
}
#endif
#endif
