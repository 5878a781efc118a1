"""From a folder of photographs and a file of class descriptions to one page: ``zsl try``."""
