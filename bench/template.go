package main

import "strings"

// placeholder marks the place of the sequence.
const placeholder = "@sequence@"

// text has the parts of a message between the places of its sequence.
type text []string

func textOf(s string) text { return strings.Split(s, placeholder) }

func (t text) with(sequence string) string { return strings.Join(t, sequence) }
