package main

import (
	"fmt"
	"strconv"
)

// sequences are the texts of 0..n-1, sliced from one string when they are needed: a list
// of n pointers would load the garbage collector, and distort the measurement.
type sequences struct{ text string }

const sequenceDigits = 12

func newSequences(n int) sequences {
	text := make([]byte, 0, n*sequenceDigits)
	for i := range n {
		text = fmt.Appendf(text, "%0*d", sequenceDigits, i)
	}
	return sequences{string(text)}
}

func (s sequences) at(i int) string { return s.text[i*sequenceDigits : (i+1)*sequenceDigits] }

// sequenceNumber is the inverse of at. It returns -1 for any other text.
func sequenceNumber(sequence string) int {
	n, err := strconv.Atoi(sequence)
	if err != nil {
		return -1
	}
	return n
}
