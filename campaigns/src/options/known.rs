//! All options that the commands have. An option that no case has is missing in the search: the test here fails then.
