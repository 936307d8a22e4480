/* Video4Linux2 capture devices in user space, for LD_PRELOAD.
 *
 * A process with this library finds at /dev/video0, /dev/video1, ... what FOLDER, a macro,
 * has under 0, 1, ..., and nothing else. A device behaves as a USB camera with the kernel's driver
 * uvcvideo does: one format, buffers that are mapped into memory, ENODEV from the moment in which
 * its plug is pulled. A process reads one device at a time. The folder of a device has two files:
 *
 *   state  what is the matter with it: on, gone (its plug is pulled), silent (it gives no frames),
 *          busy (another program has it), forbidden (this user may not use it), metadata (it is
 *          the second device of a camera, which gives no pictures)
 *   film   what it sees, again and again: five uint32 (fourcc, width, height, frames per second,
 *          number of frames), then per frame two uint32 (bytes, flags of its buffer) and the bytes;
 *          the flags ~0 pull the plug
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEVICES "/dev/video"
#define BUFFERS 4
#define MEMORY (16 << 20)  /* bytes of all buffers */

static struct {
    int number;  /* in its path */
    int fd;  /* of the memory that is the device's buffers; -1 if nobody has opened it */
    int is_patient;  /* DQBUF waits */
    FILE *film;
    uint32_t fourcc, width, height, fps, count;
    uint32_t size;  /* bytes of a buffer, in whole pages */
    uint32_t buffers;
    uint32_t queue[BUFFERS];
    uint32_t queued;
    uint32_t sequence;  /* of the next frame */
    struct timespec due;  /* when it comes */
} device = {.fd = -1};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int memory = -1;
static char *mapped = MAP_FAILED;

/* The process that reads a camera forbids itself to write to files, and a memory file, unlike the
 * memory of a real device, is one: it is made before, and then written to where it is mapped. */
__attribute__((constructor)) static void make_memory(void)
{
    memory = memfd_create("video", MFD_CLOEXEC);
    if (memory >= 0 && !ftruncate(memory, MEMORY))
        mapped = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
}

static int fail(int reason)
{
    errno = reason;
    return -1;
}

static FILE *file(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, FOLDER "/%d/%s", device.number, name);
    return fopen(path, "rbe");
}

static int is_state(const char *word)
{
    char state[32] = "gone";
    FILE *opened = file("state");
    if (opened) {
        if (fscanf(opened, "%31s", state) != 1)
            strcpy(state, "gone");
        fclose(opened);
    }
    return !strcmp(state, word);
}

static int read_words(uint32_t *words, size_t count)
{
    return fread(words, sizeof *words, count, device.film) == count;
}

static int open_device(const char *path, int flags)
{
    uint32_t facts[5];
    device.number = atoi(path + strlen(DEVICES));
    if (is_state("gone"))
        return fail(ENOENT);
    if (is_state("forbidden"))
        return fail(EACCES);
    device.film = file("film");
    if (!device.film || !read_words(facts, 5))
        return fail(EIO);
    device.fourcc = facts[0];
    device.width = facts[1];
    device.height = facts[2];
    device.fps = facts[3];
    device.count = facts[4];
    device.size = (device.width * device.height * 2 + 4095) / 4096 * 4096;
    device.is_patient = !(flags & O_NONBLOCK);
    device.queued = device.sequence = device.buffers = 0;
    device.fd = mapped == MAP_FAILED ? fail(ENOMEM) : fcntl(memory, F_DUPFD_CLOEXEC, 0);
    return device.fd;
}

static int set_format(struct v4l2_format *format)
{
    struct v4l2_pix_format *pix = &format->fmt.pix;
    if (format->type != V4L2_BUF_TYPE_VIDEO_CAPTURE || is_state("metadata"))
        return fail(EINVAL);
    memset(pix, 0, sizeof *pix);
    pix->width = device.width;
    pix->height = device.height;
    pix->pixelformat = device.fourcc;
    pix->field = V4L2_FIELD_NONE;
    pix->bytesperline = device.fourcc == V4L2_PIX_FMT_YUYV ? 2 * device.width : 0;
    pix->sizeimage = 2 * device.width * device.height;
    pix->colorspace = V4L2_COLORSPACE_SRGB;
    return 0;
}

static int describe(struct v4l2_fmtdesc *format)
{
    if (format->index > 0 || format->type != V4L2_BUF_TYPE_VIDEO_CAPTURE)
        return fail(EINVAL);
    format->flags = device.fourcc == V4L2_PIX_FMT_YUYV ? 0 : V4L2_FMT_FLAG_COMPRESSED;
    format->pixelformat = device.fourcc;
    strcpy((char *)format->description, "the only one");
    return 0;
}

static int tell_size(struct v4l2_frmsizeenum *size)
{
    if (size->index > 0 || size->pixel_format != device.fourcc)
        return fail(EINVAL);
    size->type = V4L2_FRMSIZE_TYPE_DISCRETE;
    size->discrete.width = device.width;
    size->discrete.height = device.height;
    return 0;
}

static int tell_input(struct v4l2_input *input)
{
    if (input->index > 0)
        return fail(EINVAL);
    memset(input, 0, sizeof *input);
    strcpy((char *)input->name, "Camera 1");
    input->type = V4L2_INPUT_TYPE_CAMERA;
    return 0;
}

static int tell_rate(struct v4l2_streamparm *parameters)
{
    if (parameters->type != V4L2_BUF_TYPE_VIDEO_CAPTURE)
        return fail(EINVAL);
    memset(&parameters->parm, 0, sizeof parameters->parm);
    parameters->parm.capture.capability = V4L2_CAP_TIMEPERFRAME;
    parameters->parm.capture.timeperframe.numerator = 1;
    parameters->parm.capture.timeperframe.denominator = device.fps;
    return 0;
}

static int introduce(struct v4l2_capability *card)
{
    memset(card, 0, sizeof *card);
    strcpy((char *)card->driver, "uvcvideo");
    strcpy((char *)card->card, "Webcam of the tests");
    strcpy((char *)card->bus_info, "usb-0000:00:14.0-1");
    card->version = 6 << 16;
    card->device_caps = V4L2_CAP_STREAMING | V4L2_CAP_EXT_PIX_FORMAT;
    card->device_caps |= is_state("metadata") ? V4L2_CAP_META_CAPTURE : V4L2_CAP_VIDEO_CAPTURE;
    card->capabilities = card->device_caps | V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_META_CAPTURE;
    card->capabilities |= V4L2_CAP_DEVICE_CAPS;
    return 0;
}

static int request_buffers(struct v4l2_requestbuffers *request)
{
    if (request->memory != V4L2_MEMORY_MMAP)
        return fail(EINVAL);
    if (request->count > BUFFERS)
        request->count = BUFFERS;
    device.buffers = request->count;
    device.queued = 0;
    return (uint64_t)device.buffers * device.size > MEMORY ? fail(ENOMEM) : 0;
}

static int query_buffer(struct v4l2_buffer *buffer)
{
    if (buffer->index >= device.buffers)
        return fail(EINVAL);
    buffer->length = device.size;
    buffer->m.offset = buffer->index * device.size;
    return 0;
}

static int queue_buffer(struct v4l2_buffer *buffer)
{
    if (buffer->index >= device.buffers || device.queued == device.buffers)
        return fail(EINVAL);
    device.queue[device.queued++] = buffer->index;
    return 0;
}

static void wait_for_next(void)
{
    device.due.tv_nsec += 1000000000 / device.fps;
    if (device.due.tv_nsec >= 1000000000) {
        device.due.tv_nsec -= 1000000000;
        device.due.tv_sec++;
    }
}

static int start(void)
{
    clock_gettime(CLOCK_MONOTONIC, &device.due);
    device.sequence = 0;
    fseek(device.film, 5 * sizeof(uint32_t), SEEK_SET);
    wait_for_next();
    return 0;
}

static int is_due(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec != device.due.tv_sec)
        return now.tv_sec > device.due.tv_sec;
    return now.tv_nsec >= device.due.tv_nsec;
}

static int fill(struct v4l2_buffer *buffer)
{
    uint32_t facts[2], index = device.queue[0];
    if (device.sequence && device.sequence % device.count == 0)
        fseek(device.film, 5 * sizeof(uint32_t), SEEK_SET);
    if (!read_words(facts, 2) || facts[0] > device.size
        || fread(mapped + (size_t)index * device.size, 1, facts[0], device.film) != facts[0])
        return fail(EIO);
    if (facts[1] == ~0u)
        return fail(ENODEV);
    memmove(device.queue, device.queue + 1, --device.queued * sizeof *device.queue);
    buffer->index = index;
    buffer->bytesused = facts[0];
    buffer->length = device.size;
    buffer->flags = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC | facts[1];
    buffer->field = V4L2_FIELD_NONE;
    buffer->sequence = device.sequence++;
    buffer->timestamp.tv_sec = device.due.tv_sec;
    buffer->timestamp.tv_usec = device.due.tv_nsec / 1000;
    buffer->m.offset = index * device.size;
    wait_for_next();
    return 0;
}

static int take_buffer(struct v4l2_buffer *buffer)
{
    for (;;) {
        if (is_state("gone"))
            return fail(ENODEV);
        if (is_due() && device.queued && !is_state("silent"))
            return fill(buffer);
        if (!device.is_patient)
            return fail(EAGAIN);
        pthread_mutex_unlock(&mutex);
        usleep(2000);
        pthread_mutex_lock(&mutex);
    }
}

static int answer(unsigned long request, void *what)
{
    if (is_state("gone"))
        return fail(ENODEV);
    switch (request) {
    case VIDIOC_QUERYCAP:
        return introduce(what);
    case VIDIOC_G_INPUT:
        *(int *)what = 0;
        return 0;
    case VIDIOC_S_INPUT:
        return *(int *)what ? fail(EINVAL) : 0;
    case VIDIOC_ENUMINPUT:
        return tell_input(what);
    case VIDIOC_ENUM_FMT:
        return describe(what);
    case VIDIOC_ENUM_FRAMESIZES:
        return tell_size(what);
    case VIDIOC_S_FMT:
        if (is_state("busy"))
            return fail(EBUSY);
        return set_format(what);
    case VIDIOC_G_FMT:
    case VIDIOC_TRY_FMT:
        return set_format(what);
    case VIDIOC_G_PARM:
    case VIDIOC_S_PARM:
        return tell_rate(what);
    case VIDIOC_REQBUFS:
        return is_state("busy") ? fail(EBUSY) : request_buffers(what);
    case VIDIOC_QUERYBUF:
        return query_buffer(what);
    case VIDIOC_QBUF:
        return queue_buffer(what);
    case VIDIOC_DQBUF:
        return take_buffer(what);
    case VIDIOC_STREAMON:
        return start();
    case VIDIOC_STREAMOFF:
        device.queued = 0;
        return 0;
    default: /* such as VIDIOC_G_STD, which a USB camera does not know */
        return fail(ENOTTY);
    }
}

static int opened(const char *name, const char *path, int flags, mode_t mode)
{
    int fd;
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    if (strncmp(path, DEVICES, strlen(DEVICES)))
        return next(path, flags, mode);
    pthread_mutex_lock(&mutex);
    fd = device.fd < 0 ? open_device(path, flags) : fail(EBUSY);
    pthread_mutex_unlock(&mutex);
    return fd;
}

static mode_t given_mode(int flags, va_list rest)
{
    int makes_one = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    return makes_one ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;
    va_start(rest, flags);
    mode = given_mode(flags, rest);
    va_end(rest);
    return opened("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;
    va_start(rest, flags);
    mode = given_mode(flags, rest);
    va_end(rest);
    return opened("open64", path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...)
{
    int result;
    va_list rest;
    void *what;
    int (*next)(int, unsigned long, ...) =
        (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    va_start(rest, request);
    what = va_arg(rest, void *);
    va_end(rest);
    if (fd < 0 || fd != device.fd)
        return next(fd, request, what);
    pthread_mutex_lock(&mutex);
    result = answer(request, what);
    pthread_mutex_unlock(&mutex);
    return result;
}

int close(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    pthread_mutex_lock(&mutex);
    if (fd >= 0 && fd == device.fd) {
        fclose(device.film);
        device.fd = -1;
    }
    pthread_mutex_unlock(&mutex);
    return next(fd);
}
