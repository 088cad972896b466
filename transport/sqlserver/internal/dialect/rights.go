package dialect

// Right is a right that a use of a table needs.
type Right struct {
	Verb string // as in GRANT
	On   ObjectType
	Of   Table
}

// ObjectType is the part of a table that the right is on.
type ObjectType string

const (
	OnTable    ObjectType = "table"
	OnSchema   ObjectType = "schema"
	OnSequence ObjectType = "sequence" // from which the column seq has its default
)

// RightsOn returns rights on a table.
func RightsOn(t Table, verbs ...string) []Right {
	list := make([]Right, len(verbs))
	for i, verb := range verbs {
		list[i] = Right{verb, OnTable, t}
	}
	return list
}
