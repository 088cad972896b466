package workload

import (
	"fmt"
	"strconv"
)

// Sequences are the texts of 0..n-1, sliced from one string when they are needed: a list
// of n pointers would load the garbage collector, and distort the measurement.
type Sequences struct{ text string }

// SequenceDigits is the length of each text.
const SequenceDigits = 12

// NewSequences returns the texts of 0..n-1.
func NewSequences(n int) Sequences {
	text := make([]byte, 0, n*SequenceDigits)
	for i := range n {
		text = fmt.Appendf(text, "%0*d", SequenceDigits, i)
	}
	return Sequences{string(text)}
}

// At returns the text of i.
func (s Sequences) At(i int) string { return s.text[i*SequenceDigits : (i+1)*SequenceDigits] }

// SequenceNumber is the inverse of [Sequences.At]. It returns -1 for any other text.
func SequenceNumber(sequence string) int {
	n, err := strconv.Atoi(sequence)
	if err != nil {
		return -1
	}
	return n
}
