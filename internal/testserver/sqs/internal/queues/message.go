package queues

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
)

// A message is a message in a queue.
type message struct {
	content.Content
	serial uint64 // identifies it within the server, also in receipt handles
	order  uint64 // its place in the queue: the lowest is received first

	group, deduplication string
	sequence             string // FIFO queues only
	sent                 clock.Instant
	enqueued             clock.Instant // the retention period starts here
	first                clock.Instant // of the first receive
	count                int           // of receives, from all queues that it was in
	here                 int           // of receives from this queue
	source               string        // ARN of the queue whose redrive policy moved it here

	state    state
	due      clock.Instant // the end of the delay or of the visibility timeout
	received clock.Instant // of the last receive: visibility may end at most 12 hours after it
	receive  uint64        // number of the last receive, which its receipt handle has

	place int // its index in the heap of its state
	age   int // its index in queue.ages
}

type state uint8

const (
	ready state = iota
	delayed
	inFlight
	gone
)

// A receipt is a receipt handle's content.
type receipt struct{ queue, serial, receive uint64 }

// handlePrefix begins the receipt handles of Amazon SQS, too.
const handlePrefix = "AQEB"

func (r receipt) handle() string {
	var raw [28]byte
	binary.BigEndian.PutUint64(raw[0:], r.queue)
	binary.BigEndian.PutUint64(raw[8:], r.serial)
	binary.BigEndian.PutUint64(raw[16:], r.receive)
	binary.BigEndian.PutUint32(raw[24:], crc32.ChecksumIEEE(raw[:24]))
	text := make([]byte, len(handlePrefix)+base64.StdEncoding.EncodedLen(len(raw)))
	copy(text, handlePrefix)
	base64.StdEncoding.Encode(text[len(handlePrefix):], raw[:])
	return string(text)
}

// parseHandle returns the receipt in a handle, or false if the handle is not one of the
// queue's.
func parseHandle(handle string, queue uint64) (receipt, bool) {
	if len(handle) != 44 || handle[:len(handlePrefix)] != handlePrefix {
		return receipt{}, false
	}
	var raw [30]byte
	n, err := base64.StdEncoding.Decode(raw[:], []byte(handle[len(handlePrefix):]))
	if err != nil || n != 28 || crc32.ChecksumIEEE(raw[:24]) != binary.BigEndian.Uint32(raw[24:]) {
		return receipt{}, false
	}
	r := receipt{binary.BigEndian.Uint64(raw[0:]), binary.BigEndian.Uint64(raw[8:]), binary.BigEndian.Uint64(raw[16:])}
	return r, r.queue == queue
}

// sequenceNumber returns the n-th sequence number: they have 20 digits, grow, and are not
// consecutive.
func sequenceNumber(n uint64) string {
	digits := strconv.FormatUint(n*256, 10)
	const zeros = "18800000000000000000"
	if len(digits) > len(zeros)-3 {
		return digits
	}
	return zeros[:len(zeros)-len(digits)] + digits
}
