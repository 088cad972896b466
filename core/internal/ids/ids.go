// Package ids makes the ids of messages.
package ids

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// New returns a UUID of version 7: ordered by time, which keeps database indexes
// compact, and random enough to be unique.
func New() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|uint64(rand.Uint32()&0xffff))
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return format(&id, 7)
}

// Derived returns the id of the n-th message sent while handling another one: the same
// for every attempt, so that a message that was sent in an attempt that failed afterwards
// can be recognised (R20). It is a UUID of version 8.
func Derived(incomingID, endpoint string, n int) string {
	buf := make([]byte, 0, 128)
	buf = append(buf, endpoint...)
	buf = append(buf, 0)
	buf = append(buf, incomingID...)
	buf = append(buf, 0)
	buf = binary.BigEndian.AppendUint64(buf, uint64(n))
	sum := sha256.Sum256(buf)
	return format((*[16]byte)(sum[:16]), 8)
}

func format(id *[16]byte, version byte) string {
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
