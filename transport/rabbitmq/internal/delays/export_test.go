package delays

const MaxSeconds = maxSeconds

var (
	LevelBindings  = levelBindings
	LevelArguments = levelArguments
	NextExchange   = nextExchange
)
