package suite

import "strings"

func firstLine(value string) string {
	line, _, _ := strings.Cut(value, "\n")
	return line
}

var panicMutants = []mutant{
	{rule: "R26", name: "ends a header at its first line", breaks: func() changes { return cutsHeaders(firstLine) }},
	{rule: "R26", name: "makes one space of each white space", breaks: func() changes {
		return cutsHeaders(func(value string) string { return strings.Join(strings.Fields(value), " ") })
	}},
}
