package postgres

// Statements returns the texts of all statements of a store.
func Statements(c Config) ([]string, error) {
	t, err := newTable(c)
	if err != nil {
		return nil, err
	}
	return append(t.ddl(), lockSchema, t.claim, t.claimFor, t.entry, t.note, t.mark, t.remove, t.describe), nil
}
